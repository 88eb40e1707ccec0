"""A mechanism that is explored in a notebook: the page in a frame, whose messages go through the kernel, by anywidget.

The frame has an origin of its own and may reach nothing; the module around it hands messages on, in both directions.
"""

from typing import Any

from jaxmbd.errors import needs
from jaxmbd.view._live_page import live_page
from jaxmbd.view._session import Session

_MODULE = """
export default {
  render({ model, el }) {
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts allow-downloads");
    Object.assign(frame.style, { width: "100%", height: `${model.get("height")}px`, border: "0" });
    const fromPage = ({ source, data }) => {
      if (source === frame.contentWindow && data?.jaxmbd) model.send(data.jaxmbd);
    };
    const fromPython = (content) => frame.contentWindow?.postMessage({ jaxmbd: content }, "*");
    addEventListener("message", fromPage);
    model.on("msg:custom", fromPython);
    frame.srcdoc = model.get("page");
    el.append(frame);
    return () => {
      removeEventListener("message", fromPage);
      model.off("msg:custom", fromPython);
    };
  },
};
"""


def widget(session: Session, height: int) -> Any:
    """A widget `height` [px] high that shows a session.

    **Raises:** `MechanismError` without the package anywidget.
    """
    needs("explore in a notebook", "anywidget", "live")
    import anywidget
    import traitlets

    class Explorer(anywidget.AnyWidget):
        _esm = _MODULE
        page = traitlets.Unicode("").tag(sync=True)
        height = traitlets.Int(600).tag(sync=True)

    text = live_page(session.title, session.linkage.mechanism.space.dim)
    made = Explorer(page=text, height=height)
    made.on_msg(lambda widget, content, buffers: widget.send(session.answer(content)))
    return made
