/* A reader chooses one of the pictures of a chart, and hides curves; on paper everything is unfolded. */
for (const figure of document.querySelectorAll("figure.chart")) {
  const plots = [...figure.querySelectorAll(".plot")], chosen = {};
  for (const [key, text] of [["y", "show "], ["x", "against "]]) {
    const values = [...new Set(plots.map((one) => one.dataset[key]))];
    if (values.length < 2) continue;
    const label = document.createElement("label"), select = document.createElement("select");
    for (const value of values) select.append(new Option(value, value));
    chosen[key] = select;
    select.addEventListener("change", () => {
      for (const one of plots) one.hidden = Object.entries(chosen).some(([name, other]) => one.dataset[name] !== other.value);
    });
    label.append(text, select);
    figure.querySelector(".controls").append(label);
  }
  for (const button of figure.querySelectorAll(".legend button"))
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", shown);
      const own = new RegExp(`-(line|band|level)-${button.dataset.curve}$`);
      for (const one of figure.querySelectorAll(".plot g[id]")) if (own.test(one.id)) one.style.display = shown ? "" : "none";
    });
}
const opened = [];
matchMedia("print").addEventListener("change", (event) => {  // on paper nothing can be unfolded
  const folded = event.matches ? document.querySelectorAll("details:not([open])") : opened.splice(0);
  for (const one of folded) one.open = event.matches;
  if (event.matches) opened.push(...folded);
});
