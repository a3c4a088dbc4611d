// A browser loads no modules from a disk: the page says what it needs.
if (location.protocol === "file:") {
  addEventListener("DOMContentLoaded", () => {
    for (const element of document.querySelectorAll("main > *, #search, .skip")) element.hidden = element.id !== "disk";
  });
}
