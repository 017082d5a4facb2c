"use strict";
const table = document.querySelector("#entries");
const body = table.tBodies[0];
const rows = [...body.querySelectorAll("tr.entry")].map((row) => ({ row, more: row.nextElementSibling }));
const search = document.querySelector("#search");
const choices = ["status", "how", "database"].map((id) => document.querySelector("#" + id));

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const { row, more } of rows) {
    const keep =
      words.every((word) => row.dataset.text.includes(word)) &&
      choices.every((choice) => !choice.value || row.dataset[choice.id].split(" ").includes(choice.value));
    row.hidden = !keep;
    more.hidden = !keep || row.querySelector("button").getAttribute("aria-expanded") !== "true";
    shown += keep;
  }
  document.querySelector("#shown").textContent = `${shown} of ${rows.length} entries`;
}

function sort(header) {
  const column = header.cellIndex;
  const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  const key = ({ row }) => row.cells[column].dataset.key ?? row.cells[column].textContent;
  const numbers = header.classList.contains("number") || header.classList.contains("dtype");
  rows.sort((a, b) => sign * (numbers ? key(a) - key(b) : key(a).localeCompare(key(b))));
  for (const { row, more } of rows) body.append(row, more);
}

// A link such as page.html#softmax opens the page with this search.
function fromLink() {
  search.value = decodeURIComponent(location.hash.slice(1));
  filter();
}

search.addEventListener("input", () => {
  history.replaceState(null, "", "#" + encodeURIComponent(search.value));
  filter();
});
window.addEventListener("hashchange", fromLink);
for (const choice of choices) choice.addEventListener("change", filter);
for (const header of table.tHead.rows[0].cells) {
  header.querySelector("button").addEventListener("click", () => sort(header));
}
for (const { row } of rows) {
  row.addEventListener("click", () => {
    const button = row.querySelector("button");
    button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") !== "true");
    filter();
  });
}
fromLink();
