"use strict";
(() => {
  const tip = document.getElementById("tip");

  // A picture: each mark tells its text to the pointer; by arrow keys one walks from mark to mark.
  const explore = (svg) => {
    const marks = [...svg.querySelectorAll("[data-tip]")];
    if (!marks.length) return;
    const line = svg.closest("figure").querySelector("output");
    const stride = Number(svg.dataset.stride || 0);
    let at = -1;
    const leave = () => {
      tip.className = "";
      if (at >= 0) marks[at].classList.remove("on");
      at = -1;
    };
    const go = (next, told, x, y) => {
      leave();
      at = Math.max(0, Math.min(marks.length - 1, next));
      marks[at].classList.add("on");
      tip.textContent = marks[at].dataset.tip;
      if (told) line.textContent = marks[at].dataset.tip;
      tip.className = "on";
      tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
      tip.style.top = (y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18) + "px";
    };
    svg.tabIndex = 0;
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-roledescription", "picture");
    svg.setAttribute("aria-label", svg.getAttribute("aria-label") + ". Arrow keys go through it; a table is below.");
    svg.querySelector("title").remove(); // else the browser shows it over our own
    svg.addEventListener("pointermove", (event) => {
      const mark = event.target.closest("[data-tip]");
      if (mark) go(marks.indexOf(mark), false, event.clientX, event.clientY);
      else leave();
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const steps = {
        ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: marks.length - 1,
        ArrowDown: at + (stride || 1), ArrowUp: at - (stride || 1),
      };
      if (event.key === "Escape") return leave();
      if (!(event.key in steps)) return;
      event.preventDefault();
      const next = steps[event.key];
      if (stride && at >= 0 && (next < 0 || next >= marks.length)) return;
      const mark = marks[Math.max(0, Math.min(marks.length - 1, next))];
      mark.scrollIntoView({ block: "nearest", inline: "nearest" });
      const box = mark.getBoundingClientRect();
      go(next, true, box.left, box.bottom - 10);
    });
  };
  document.querySelectorAll("svg.picture").forEach(explore);

  for (const box of document.querySelectorAll("input[name=figure]"))
    box.addEventListener("change", () => {
      box.closest("figure").querySelector("svg.picture").dataset.figure = box.value;
    });

  // A table: its headings become buttons that sort it, numbers the largest first.
  const sortable = (table) => {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rows = [...body.rows];
        const numbers = rows.every((row) => "v" in row.cells[column].dataset);
        const before = head.getAttribute("aria-sort");
        const down = before ? before === "ascending" : numbers;
        const value = (row) => (numbers ? Number(row.cells[column].dataset.v) : row.cells[column].textContent);
        const order = (a, b) => (numbers ? a - b : a.localeCompare(b, "en", { numeric: true }));
        rows.sort((a, b) => (down ? -1 : 1) * order(value(a), value(b)));
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...rows);
      });
    });
  };
  document.querySelectorAll("table.sortable").forEach(sortable);

  // On paper all of it is shown.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => closed.forEach((one) => (one.open = false)));
})();
