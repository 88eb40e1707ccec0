// Where builds of several versions lie side by side, `versions.json` beside them lists their folders (docs/pages/versions.py):
// a choice among them, which leads to the same page. It stays hidden where there is one version, or no server.
"use strict";

(async () => {
    const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
    const answer = await fetch(new URL("../versions.json", root));
    const versions = answer.ok ? await answer.json() : [];
    const here = root.pathname.split("/").at(-2);
    if (versions.length < 2 || !versions.includes(here)) return;
    const select = document.getElementById("versions");
    select.append(...versions.map((name) => new Option(name, name, name === here, name === here)));
    select.hidden = false;
    select.addEventListener("change", async () => {
        const there = new URL(`../${select.value}/`, root);
        const same = new URL(location.href.slice(root.href.length), there);
        location.href = (await fetch(same, { method: "HEAD" })).ok ? same : there;
    });
})().catch(() => {}); // a site of one version, or files without a server
