
// Sorting, nothing else: the page is complete without it.
"use strict";
(() => {
  const keyOf = (cell, numeric) => {
    const data = cell.querySelector("data");
    if (numeric) return data === null ? NaN : Number(data.value);
    return cell.textContent.trim();
  };
  const compare = (a, b, numeric, sign) => {
    if (!numeric) return sign * a.localeCompare(b, "en", { numeric: true });
    // What has no number stays below, whichever way the rest is sorted.
    if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return sign * (a - b);
  };
  const sortBy = (table, header) => {
    const column = header.cellIndex;
    const numeric = header.classList.contains("n");
    const order = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => ({ row, key: keyOf(row.cells[column], numeric) }));
    rows.sort((a, b) => compare(a.key, b.key, numeric, sign));
    body.append(...rows.map(({ row }) => row));
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
  };
  for (const table of document.querySelectorAll("table:not(.identity)")) {
    if (table.tBodies[0].rows.length < 2) continue;
    for (const header of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      button.addEventListener("click", () => sortBy(table, header));
      header.append(button);
    }
  }
})();
