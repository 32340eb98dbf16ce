// What the pages do beside htmx: theme, keys, live tail, copy. No state is kept but the theme.
const root = document.documentElement;
const TAIL_ROWS_MAX = 300;

// -- theme -------------------------------------------------------------------
const stored = localStorage.getItem("theme");
if (stored) root.dataset.theme = stored;

function switchTheme() {
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

// -- live tail ---------------------------------------------------------------
let source = null;

function note(text) {
  const line = document.getElementById("tail-note");
  line.hidden = !text;
  line.textContent = text;
}

function stopTail(button, text) {
  source?.close();
  source = null;
  button.setAttribute("aria-pressed", "false");
  button.textContent = "▶ Live";
  note(text);
}

function addRows(html) {
  const body = document.getElementById("records");
  const holder = document.createElement("template");
  holder.innerHTML = html; // rows of the server's template, which escapes every value
  const rows = [...holder.content.querySelectorAll("tr")];
  if (rows.length) body.querySelector("tr.none")?.remove();
  for (const row of rows) row.classList.add("new");
  body.prepend(...rows);
  while (body.rows.length > TAIL_ROWS_MAX) body.lastElementChild.remove();
}

function toggleTail(button) {
  if (source) return stopTail(button, "Stopped.");
  source = new EventSource(button.dataset.tail);
  button.setAttribute("aria-pressed", "true");
  button.textContent = "■ Stop";
  note("Connecting…");
  source.addEventListener("open", () => note("Live: new records appear at the top."));
  source.addEventListener("records", (event) => addRows(event.data));
  source.addEventListener("error", () => stopTail(button, "The live view has ended; start it again."));
}

// -- forms -------------------------------------------------------------------
function showStart(select) {
  for (const label of select.form.querySelectorAll("[data-for]"))
    label.hidden = label.dataset.for !== select.value;
}

function checkTyped(input) {
  input.setCustomValidity(input.value === input.dataset.mustEqual ? "" : "This is not the name.");
}

function indentJson() {
  const value = document.querySelector('pre.value[data-format="json"] bdi, pre.value[data-format="schema"] bdi');
  if (!value) return;
  try { value.textContent = JSON.stringify(JSON.parse(value.textContent), null, 2); } catch { /* as it is */ }
}

// -- events ------------------------------------------------------------------
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.id === "theme") switchTheme();
  if (button.dataset.tail) toggleTail(button);
  if (button.dataset.copy) {
    await navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent);
    button.textContent = "Copied";
  }
});
document.addEventListener("input", (event) => {
  if (event.target.dataset.mustEqual !== undefined) checkTyped(event.target);
});
document.addEventListener("change", (event) => {
  if (event.target.dataset.start !== undefined) showStart(event.target);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const field = document.querySelector('[data-hotkey="/"]');
  if (field) { event.preventDefault(); field.focus(); }
});
for (const select of document.querySelectorAll("select[data-start]")) showStart(select);
for (const input of document.querySelectorAll("[data-must-equal]")) checkTyped(input);
indentJson();
