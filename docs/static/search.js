// The results of a search: sections and names that Pagefind finds. It asks the server for parts of its index; where a
// page is a file without a server, Sphinx's own search, whose index is a script, finds pages.
"use strict";

const MOST = 50; // results that are shown
const input = document.getElementById("search-input");
const place = document.getElementById("search-results");

function element(name, attributes, ...children) {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children);
    return made;
}

// All that has all words, and, of three or more words, what has all but one.
async function searched(pagefind, text) {
    const words = text.trim().split(/\s+/);
    const less = words.length > 2 ? words.map((_, k) => words.filter((_, other) => other !== k).join(" ")) : [];
    const whole = await pagefind.debouncedSearch(text);
    if (whole === null) return null; // more has been typed
    const answers = [whole, ...(await Promise.all(less.map((query) => pagefind.search(query))))];
    const found = new Map(answers.flatMap(({ results }) => results.slice(0, MOST)).map((result) => [result.id, result]));
    const all = new Set(whole.results.map((result) => result.id));
    return Promise.all([...found].map(async ([id, result]) => ({ hasAll: all.has(id), ...(await result.data()) })));
}

// First come results that have all words, and whose titles, or those of their pages, have more of them; else it is
// Pagefind's order.
function ordered(found, text) {
    const tokens = (title) => title.toLowerCase().split(/[^a-z0-9]+/).filter(Boolean);
    const share = (word, token) => (token === word ? 1 : word.length > 2 && token.startsWith(word) ? 0.7 : 0);
    const held = (title) => {
        const shares = tokens(text).map((word) => Math.max(0, ...tokens(title).map((token) => share(word, token))));
        return shares.reduce((sum, part) => sum + part, 0);
    };
    const rank = ({ hasAll, meta: { title, page } }) =>
        held(title) * (1 + 1 / tokens(title).length) + held(page) / 2 + (hasAll ? 1 : 0);
    return found.map((data) => [rank(data), data]).sort(([a], [b]) => b - a).map(([, data]) => data).slice(0, MOST);
}

async function show(pagefind, text) {
    const found = await searched(pagefind, text);
    if (found === null) return;
    const items = ordered(found, text).map(({ raw_url, meta, excerpt }) => {
        const link = element("a", { href: raw_url, textContent: meta.title });
        return element("li", { className: "search-found" }, link, ` ${meta.page}`, element("p", { innerHTML: excerpt }));
    });
    const none = element("p", { textContent: text.trim() && !items.length ? "Nothing was found." : "" });
    place.replaceChildren(none, element("ul", { className: "search" }, ...items));
}

async function start() {
    input.value = new URLSearchParams(location.search).get("q") ?? "";
    const pagefind = await import("../pagefind/pagefind.js");
    input.form.addEventListener("submit", (event) => event.preventDefault());
    input.addEventListener("input", () => show(pagefind, input.value));
    await show(pagefind, input.value);
}

start().catch(() => {
    for (const name of ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"]) {
        document.head.append(element("script", { src: name, async: false }));
    }
});
