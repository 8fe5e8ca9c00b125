// Typeset what stands between $$ and $$. Where KaTeX is missing, the formulas stay as they were written.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof katex === "undefined") return;
  for (const element of document.querySelectorAll(".arithmatex")) {
    const text = element.textContent.trim();
    const displayMode = text.startsWith("\\[");
    katex.render(text.slice(2, -2), element, { displayMode, throwOnError: false });
  }
});
