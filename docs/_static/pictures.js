// A tap on a picture opens it alone, as large as it is.
document.addEventListener("DOMContentLoaded", () => {
  for (const image of document.querySelectorAll(".bd-article img")) {
    if (image.closest("a, .sd-card")) continue;
    const link = document.createElement("a");
    link.href = image.src;
    link.className = "picture";
    image.replaceWith(link);
    link.append(image);
  }
});

// On a phone, a table that would scroll sideways gets room: the first cell of a row goes above the others.
const narrowTables = () => {
  for (const box of document.querySelectorAll(".bd-article .pst-scrollable-table-container")) {
    const table = box.querySelector("table.table");
    table.classList.remove("narrowed");
    if (!box.clientWidth || innerWidth > 600 || box.scrollWidth <= box.clientWidth) continue;
    const columns = table.rows[0].cells.length - 1;
    table.style.setProperty("--columns", columns > 5 ? Math.ceil(columns / 2) : columns);
    table.classList.add("narrowed");
  }
};
for (const event of ["load", "resize"]) addEventListener(event, narrowTables);
addEventListener("toggle", narrowTables, true);
