// What the theme leaves to do when a page is there.

/** Typeset what stands between $$ and $$. Where KaTeX is missing, the formulas stay as they were written. */
function typeset() {
  if (typeof katex === "undefined") return;
  for (const element of document.querySelectorAll(".arithmatex")) {
    const text = element.textContent.trim();
    const displayMode = text.startsWith("\\[");
    katex.render(text.slice(2, -2), element, { displayMode, throwOnError: false });
  }
}

/** Make the theme's markup accessible: lines of code are no links, a list in a list is no landmark, an empty corner of
 * a table is no header, and the keyboard scrolls what scrolls. */
function makeAccessible() {
  for (const line of document.querySelectorAll("a[id*=__codelineno]")) line.removeAttribute("href");
  for (const list of document.querySelectorAll("nav nav, .md-code__nav")) {
    for (const name of ["aria-label", "aria-labelledby", "aria-expanded"]) list.removeAttribute(name);
    list.setAttribute("role", "none");
  }
  for (const corner of document.querySelectorAll("th:empty")) corner.replaceWith(document.createElement("td"));
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, div.arithmatex"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}

document.addEventListener("DOMContentLoaded", () => {
  typeset();
  makeAccessible();
});
addEventListener("load", makeAccessible);
