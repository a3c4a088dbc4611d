// Pictures that are dropped, pasted or chosen, and the keys of the page.
const byId = (id) => document.getElementById(id);
const SWIPE = 50; // pixels

// use(file) searches by an image file, accepts() says whether the service reads files, step(by) shows another picture.
export function listenToInputs(use, accepts, step) {
  byId("choose").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    use(event.target.files[0]);
    event.target.value = "";
  });
  document.addEventListener("paste", (event) => use(event.clipboardData.files[0]));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    byId("drop").hidden = !accepts() || !event.dataTransfer.types.includes("Files");
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("drop").hidden = true; });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").hidden = true;
    use(event.dataTransfer.files[0]);
  });
  const dialog = byId("detail");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || dialog.open || event.target.matches("input")) return;
    event.preventDefault();
    byId("query").focus();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  let start = null;
  byId("stage").addEventListener("touchstart", (event) => { start = event.touches.length === 1 ? event.touches[0].clientX : null; }, { passive: true });
  byId("stage").addEventListener("touchend", (event) => {
    const way = start === null ? 0 : event.changedTouches[0].clientX - start;
    if (Math.abs(way) > SWIPE) step(way < 0 ? 1 : -1);
  });
}
