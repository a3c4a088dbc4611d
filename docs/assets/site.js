// The theme puts a navigation without a name on each block of code, which is only a button, and scrolls wide tables by mouse alone.
new MutationObserver(() => {
  for (const buttons of document.querySelectorAll(".md-code__nav:not([role])")) buttons.setAttribute("role", "presentation");
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
}).observe(document.body, { childList: true, subtree: true });
