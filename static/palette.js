// Ctrl+K opens a palette: it goes to a page by name, and shows in place what Find finds.
"use strict";

(() => {
  const palette = document.getElementById("palette");
  const form = palette.querySelector("form");
  const field = form.elements.q;
  const areas = palette.querySelector(".areas");
  const results = palette.querySelector(".results");
  const said = palette.querySelector("[role=status]");
  const failure = palette.querySelector("[role=alert]");
  const find = document.querySelector(".find input");
  const keys = /Mac|iPhone|iPad/.test(navigator.platform) ? ["⌘K", "Meta+K"] : ["Ctrl+K", "Control+K"];

  if (matchMedia("(pointer: fine)").matches) find.placeholder += ` (${keys[0]})`;
  find.setAttribute("aria-keyshortcuts", keys[1]);

  // -- what there is to choose from --------------------------------------------------------------

  for (const link of document.querySelectorAll("header nav a")) {
    const item = document.createElement("li");
    item.append(link.cloneNode(true));
    item.firstChild.removeAttribute("aria-current");
    areas.append(item);
  }
  for (const [name, value] of Object.entries({
    "hx-get": form.getAttribute("action"),
    "hx-trigger": "input delay:200ms",
    "hx-select": ".found",
    "hx-target": "#palette .results",
    "hx-swap": "innerHTML",
    "hx-sync": "this:replace",
  })) field.setAttribute(name, value);
  htmx.process(field);

  field.addEventListener("input", () => {
    const text = field.value.trim().toLowerCase();
    for (const item of areas.children) item.hidden = !item.textContent.toLowerCase().includes(text);
  });
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.sourceElement !== field) return;
    failure.hidden = true;
    const count = results.querySelectorAll("a").length;
    said.textContent = count ? `${count} found` : results.textContent.trim();
  });

  palette.addEventListener("refine:could-not", (event) => {
    results.replaceChildren();
    said.textContent = "";
    failure.textContent = `Could not search (${event.detail}). Keep typing to try again.`;
    failure.hidden = false;
  });

  // -- keys --------------------------------------------------------------------------------------

  document.addEventListener("keydown", (event) => {
    const isShortcut = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
    if (!isShortcut || event.shiftKey || event.altKey) return;
    event.preventDefault();
    if (palette.open) return palette.close();
    palette.showModal();
    field.select();
  });
  palette.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const links = [...palette.querySelectorAll("li:not([hidden]) a")];
    const stops = [field, ...links];
    stops.at((stops.indexOf(document.activeElement) + step) % stops.length).focus();
  });
  palette.addEventListener("click", (event) => {
    if (event.target === palette) palette.close(); // beside it
  });

  // -- the header's menus ------------------------------------------------------------------------

  const menu = document.querySelector("details.switch");
  const closeMenu = () => menu?.removeAttribute("open");
  document.addEventListener("click", (event) => {
    if (!menu?.contains(event.target)) closeMenu();
  });
  menu?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    closeMenu();
    menu.querySelector("summary").focus();
  });
})();
