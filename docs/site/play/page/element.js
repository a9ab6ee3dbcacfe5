// Small pieces of the document.

const $ = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is no node is text. */
function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same, of SVG. */
function drawing(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(key, "");
    else if (value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

/** A table's head and lines. Cells are text, nodes, or `{ text, ...attributes }`; the columns from `numbers` on are numbers. */
function fillTable(table, heads, lines, numbers = 1) {
  const cell = (name) => (content, column) => {
    const { text, ...attributes } = typeof content === "object" && !(content instanceof Node) ? content : { text: content };
    return element(column === 0 && name === "td" ? "th" : name, {
      class: column >= numbers && attributes.class === undefined ? "n" : undefined,
      scope: name === "th" ? "col" : column === 0 ? "row" : undefined,
      ...attributes,
    }, text);
  };
  table.replaceChildren(
    element("thead", {}, element("tr", {}, ...heads.map(cell("th")))),
    element("tbody", {}, ...lines.map((line) => element("tr", {}, ...line.map(cell("td"))))),
  );
}

/** Colours and markers of policies, as in all pictures of this project. */
const STYLED = ["none", "nvme", "vic", "cint", "auto", "batch", "dim", "spdk_vhost", "budget"];
const styleOf = (policy) => Math.max(0, STYLED.indexOf(splitPolicy(policy).name));

/** Calls at the next frame, once however often it is asked. */
function atFrame(call) {
  let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      call();
    });
  };
}
