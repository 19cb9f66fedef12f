for (const search of document.querySelectorAll("input[type=search]")) {
  const part = search.closest("section");
  const rows = [...part.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const shown = part.querySelector("output");
  search.parentElement.hidden = false;
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    let count = 0;
    rows.forEach((row, n) => {
      row.hidden = !words.every((word) => texts[n].includes(word));
      count += row.hidden ? 0 : 1;
    });
    shown.textContent = count + " of " + rows.length;
  });
}
