// Tokens as HTML, for every page that draws them; tokens.css has their colours and marks.

const one = (id) => document.getElementById(id);
const many = (count, unit) => `${count.toLocaleString("en")} ${unit}${count === 1 ? "" : "s"}`;

function utf8Size(code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/** Characters, not units of UTF-16. */
function lengthOf(text) {
  return text.length - (text.match(/[\ud800-\udbff]/g)?.length ?? 0);
}

function escaped(text) {
  return text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);
}

/** White space and what cannot be seen, as signs. */
function visible(text) {
  return text.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "→").replaceAll("\r", "␍")
    .replace(/[\p{C}\p{Z}]/gu, "□");
}

function chip(label) {
  return `<b class="bpe-x" data-x="${label}"></b>`;
}

function chips(bytes) {
  return Array.from(bytes, (byte) => chip(hex(byte).toUpperCase())).join("");
}

/** Whole characters, white space marked and the unprintable as chips: as view.py draws them. */
function marked(text) {
  return escaped(text).replace(/( +)|(\r?\n)|(\t)|(\r)|([^\x20-\x7e])/gu, (found, spaces, line, tab, carriage) => {
    if (spaces) return `<i class="bpe-s">${spaces}</i>`;
    if (line) return `<i class="bpe-n">${line.replace("\r", "&#13;")}</i>`;
    if (tab) return '<i class="bpe-h">\t</i>';
    if (carriage) return '<i class="bpe-r">&#13;</i>';
    const label = chip(`U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
    if (/\p{Cc}/u.test(found) || (/\p{Cf}/u.test(found) && !/[\u200c\u200d]/.test(found))) return label;
    return /[\p{C}\p{Z}]/u.test(found) && !/[\u200c\u200d]/.test(found) ? label + found : found;
  });
}
