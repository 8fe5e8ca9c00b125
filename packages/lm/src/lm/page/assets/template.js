// What a chat template that page/template.py compiled calls: Python's notions of truth, text, lists and methods, and
// Jinja's filters and tests. A dict is a Map, a list an Array, None null, and what is not defined undefined.

const py = {
  within: (outer) => Object.create(outer),

  /** The scope of a macro's body: its arguments by position and by name. */
  called(outer, names, args, named) {
    const scope = Object.create(outer);
    names.forEach((name, i) => {
      if (i < args.length) scope[name] = args[i];
    });
    return Object.assign(scope, named);
  },

  truth(value) {
    if (Array.isArray(value)) return value.length > 0;
    return value instanceof Map ? value.size > 0 : Boolean(value);
  },

  and: (left, right) => (py.truth(left) ? right() : left),
  or: (left, right) => (py.truth(left) ? left : right()),

  text(value) {
    if (value === undefined) return "";
    return typeof value === "string" ? value : py.repr(value);
  },

  repr(value) {
    if (value === null || value === undefined) return "None";
    if (value === true || value === false) return value ? "True" : "False";
    if (Array.isArray(value)) return `[${value.map(py.repr).join(", ")}]`;
    if (value instanceof Map)
      return `{${Array.from(value, ([key, item]) => `${py.repr(key)}: ${py.repr(item)}`).join(", ")}}`;
    if (typeof value !== "string") return String(value);
    const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
    const escaped = value.replace(
      /[\\\n\r\t]/g,
      (sign) => ({ "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" })[sign],
    );
    return quote + (quote === "'" ? escaped.replaceAll("'", "\\'") : escaped) + quote;
  },

  equal(a, b) {
    if (Array.isArray(a) && Array.isArray(b))
      return a.length === b.length && a.every((item, i) => py.equal(item, b[i]));
    if (a instanceof Map && b instanceof Map)
      return a.size === b.size && Array.from(a).every(([key, item]) => b.has(key) && py.equal(item, b.get(key)));
    return typeof a === "boolean" || typeof b === "boolean" ? a === b || Number(a) === b || a === Number(b) : a === b;
  },

  contains(box, value) {
    if (typeof box === "string") return box.includes(py.string(value));
    if (box instanceof Map) return box.has(value);
    return py.list(box).some((item) => py.equal(item, value));
  },

  compare(operation, a, b) {
    switch (operation) {
      case "eq":
        return py.equal(a, b);
      case "ne":
        return !py.equal(a, b);
      case "in":
        return py.contains(b, a);
      case "notin":
        return !py.contains(b, a);
    }
    if (typeof a !== typeof b || a === null || b === null)
      throw new TypeError("values of different types are compared");
    return { lt: a < b, lteq: a <= b, gt: a > b, gteq: a >= b }[operation];
  },

  string(value) {
    if (typeof value !== "string") throw new TypeError(`expected a string, got ${py.repr(value)}`);
    return value;
  },

  number(value) {
    if (typeof value === "boolean") return Number(value);
    if (typeof value !== "number") throw new TypeError(`expected a number, got ${py.repr(value)}`);
    return value;
  },

  /** The items of what can be iterated over; of a dict the keys. */
  list(value) {
    if (value === undefined) return [];
    if (value === null || (typeof value !== "object" && typeof value !== "string"))
      throw new TypeError(`${py.repr(value)} has no items`);
    return value instanceof Map ? [...value.keys()] : [...value];
  },

  loop: (items, i) =>
    new Map(
      Object.entries({
        index0: i,
        index: i + 1,
        first: i === 0,
        last: i === items.length - 1,
        length: items.length,
        revindex0: items.length - 1 - i,
        revindex: items.length - i,
        previtem: items[i - 1],
        nextitem: items[i + 1],
      }),
    ),

  add(a, b) {
    if (typeof a === "string") return a + py.string(b);
    return Array.isArray(a) && Array.isArray(b) ? [...a, ...b] : py.number(a) + py.number(b);
  },
  subtract: (a, b) => py.number(a) - py.number(b),
  multiply: (a, b) => (typeof a === "string" ? a.repeat(Math.max(0, py.number(b))) : py.number(a) * py.number(b)),
  divide: (a, b) => py.number(a) / py.number(b),
  floorDivide: (a, b) => Math.floor(py.number(a) / py.number(b)),
  modulo: (a, b) => ((py.number(a) % py.number(b)) + b) % b,
  power: (a, b) => py.number(a) ** py.number(b),

  attribute(value, name) {
    if (value === undefined) throw new TypeError(`what has no value is asked for its ${name}`);
    return value instanceof Map ? value.get(name) : undefined;
  },

  item(value, key) {
    if (value === undefined) throw new TypeError(`what has no value is asked for ${py.repr(key)}`);
    if (value instanceof Map) return value.get(key);
    const items = typeof value === "string" ? [...value] : Array.isArray(value) ? value : [];
    return typeof key === "number" ? items.at(key) : undefined;
  },

  slice(value, start, stop, step) {
    const items = typeof value === "string" ? [...value] : py.list(value),
      by = step ?? 1,
      size = items.length;
    const bound = (at, missing) =>
      at === null ? missing : Math.min(Math.max(at < 0 ? at + size : at, by < 0 ? -1 : 0), by < 0 ? size - 1 : size);
    const begin = bound(start, by < 0 ? size - 1 : 0),
      end = bound(stop, by < 0 ? -1 : size),
      part = [];
    for (let i = begin; by < 0 ? i > end : i < end; i += by) part.push(items[i]);
    return typeof value === "string" ? part.join("") : part;
  },

  call(value, args, named) {
    if (typeof value !== "function") throw new TypeError("something that is no function is called");
    return value(args, named);
  },

  method(value, name, args, named) {
    const kind = typeof value === "string" ? STRING : value instanceof Map ? DICT : Array.isArray(value) ? LIST : {};
    if (Object.hasOwn(kind, name)) return kind[name](value, ...args);
    return py.call(py.attribute(value, name), args, named);
  },

  filter(name, value, args, named) {
    if (!Object.hasOwn(FILTERS, name)) throw new TypeError(`this page has no filter ${name}`);
    return FILTERS[name](value, args, named);
  },

  test(name, value, args) {
    if (!Object.hasOwn(TESTS, name)) throw new TypeError(`this page has no test ${name}`);
    return TESTS[name](value, ...args);
  },
};

const SPACE = /(?!\ufeff)[\s\x1c-\x1f\x85]/u; // as Python has it

/** A string without the characters at its ends that are white space, or among `signs`. */
function stripped(text, signs, left, right) {
  const goes = (sign) => (signs === undefined || signs === null ? SPACE.test(sign) : signs.includes(sign));
  let begin = 0,
    end = text.length;
  while (left && begin < end && goes(text[begin])) begin++;
  while (right && begin < end && goes(text[end - 1])) end--;
  return text.slice(begin, end);
}

const beginsOrEnds = (how) => (text, ends) =>
  (Array.isArray(ends) ? ends : [ends]).some((end) => text[how](py.string(end)));

const STRING = {
  strip: (text, signs) => stripped(text, signs, true, true),
  lstrip: (text, signs) => stripped(text, signs, true, false),
  rstrip: (text, signs) => stripped(text, signs, false, true),
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  title: (text) => text.toLowerCase().replace(/\p{L}+/gu, (word) => word[0].toUpperCase() + word.slice(1)),
  capitalize: (text) => text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase(),
  startswith: beginsOrEnds("startsWith"),
  endswith: beginsOrEnds("endsWith"),
  replace: (text, old, now) => text.replaceAll(py.string(old), () => py.string(now)),
  find: (text, part) => text.indexOf(part),
  join: (text, items) => py.list(items).map(py.string).join(text),
  split(text, by, most = -1) {
    if (by === undefined || by === null) return text.split(/\s+/u).filter(Boolean);
    const parts = text.split(by);
    return most < 0 ? parts : [...parts.slice(0, most), ...(parts.length > most ? [parts.slice(most).join(by)] : [])];
  },
};

const DICT = {
  get: (dict, key, missing = null) => (dict.has(key) ? dict.get(key) : missing),
  items: (dict) => [...dict.entries()],
  keys: (dict) => [...dict.keys()],
  values: (dict) => [...dict.values()],
};

const LIST = {
  append(list, item) {
    list.push(item);
    return null;
  },
};

function toJson(value, indent, depth = 0) {
  const line = indent ? `\n${" ".repeat(indent * (depth + 1))}` : "",
    end = indent ? `\n${" ".repeat(indent * depth)}` : "";
  const joined = (parts, [open, close]) =>
    parts.length ? open + line + parts.join((indent ? "," : ", ") + line) + end + close : open + close;
  if (Array.isArray(value))
    return joined(
      value.map((item) => toJson(item, indent, depth + 1)),
      "[]",
    );
  if (!(value instanceof Map)) return JSON.stringify(value ?? null);
  return joined(
    Array.from(value, ([key, item]) => `${JSON.stringify(key)}: ${toJson(item, indent, depth + 1)}`),
    "{}",
  );
}

/** The items of which an attribute passes a test, or not. */
const selected =
  (wanted) =>
  (value, [name, test = "truth", ...rest]) =>
    py.list(value).filter((item) => {
      const found = py.item(item, name);
      return wanted === (test === "truth" ? py.truth(found) : py.test(test, found, rest));
    });

const FILTERS = {
  trim: (value) => stripped(py.text(value), null, true, true),
  length: (value) =>
    value instanceof Map ? value.size : typeof value === "string" ? [...value].length : py.list(value).length,
  count: (value) => FILTERS.length(value),
  upper: (value) => py.text(value).toUpperCase(),
  lower: (value) => py.text(value).toLowerCase(),
  title: (value) => STRING.title(py.text(value)),
  capitalize: (value) => STRING.capitalize(py.text(value)),
  string: (value) => py.text(value),
  int: (value) => Math.trunc(Number(value)) || 0,
  list: (value) => py.list(value),
  first: (value) => py.list(value)[0],
  last: (value) => py.list(value).at(-1),
  reverse: (value) => (typeof value === "string" ? [...value].reverse().join("") : py.list(value).reverse()),
  join: (value, [by = ""]) => py.list(value).map(py.text).join(by),
  items: (value) => (value === undefined ? [] : DICT.items(value)),
  dictsort: (value) => DICT.items(value).sort(([a], [b]) => (a < b ? -1 : 1)),
  replace: (value, [old, now]) => STRING.replace(py.text(value), old, now),
  default: (value, [other = "", always], named) =>
    value === undefined || ((always ?? named.boolean) && !py.truth(value)) ? other : value,
  d: (value, args, named) => FILTERS.default(value, args, named),
  tojson: (value, args, named) => toJson(value, named.indent ?? args[1]),
  safe: (value) => value,
  map: (value, args, named) =>
    py
      .list(value)
      .map((item) =>
        named.attribute === undefined ? py.filter(args[0], item, args.slice(1), {}) : py.item(item, named.attribute),
      ),
  selectattr: selected(true),
  rejectattr: selected(false),
  select: (value, [test, ...rest]) => py.list(value).filter((item) => py.test(test, item, rest)),
  reject: (value, [test, ...rest]) => py.list(value).filter((item) => !py.test(test, item, rest)),
};

const TESTS = {
  defined: (value) => value !== undefined,
  undefined: (value) => value === undefined,
  none: (value) => value === null,
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number" || typeof value === "boolean",
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  true: (value) => value === true,
  false: (value) => value === false,
  mapping: (value) => value instanceof Map,
  sequence: (value) => typeof value === "string" || Array.isArray(value) || value instanceof Map,
  iterable: (value) => typeof value === "string" || Array.isArray(value) || value instanceof Map,
  callable: (value) => typeof value === "function",
  odd: (value) => value % 2 !== 0,
  even: (value) => value % 2 === 0,
  divisibleby: (value, by) => value % by === 0,
  eq: (value, other) => py.equal(value, other),
  equalto: (value, other) => py.equal(value, other),
  "==": (value, other) => py.equal(value, other),
  ne: (value, other) => !py.equal(value, other),
  in: (value, box) => py.contains(box, value),
};

/** Functions that transformers gives chat templates, and Jinja's own. */
const FUNCTIONS = {
  raise_exception: ([message]) => {
    throw new Error(py.text(message));
  },
  namespace: (args, named) => new Map(Object.entries(named)),
  dict: (args, named) => new Map(Object.entries(named)),
  range: ([first, second, step = 1]) => {
    const [begin, end] = second === undefined ? [0, first] : [first, second],
      numbers = [];
    for (let i = begin; step < 0 ? i > end : i < end; i += step) numbers.push(i);
    return numbers;
  },
  strftime_now: ([pattern]) => {
    const now = new Date(),
      two = (value) => String(value).padStart(2, "0");
    const word = (options) => now.toLocaleString("en-US", options);
    const parts = {
      d: two(now.getDate()),
      m: two(now.getMonth() + 1),
      Y: now.getFullYear(),
      H: two(now.getHours()),
      M: two(now.getMinutes()),
      S: two(now.getSeconds()),
      b: word({ month: "short" }),
      B: word({ month: "long" }),
      a: word({ weekday: "short" }),
      A: word({ weekday: "long" }),
      y: two(now.getFullYear() % 100),
      "%": "%",
    };
    return pattern.replace(/%(.)/g, (found, letter) => parts[letter] ?? found);
  },
};

/** The values of JSON as templates have them. */
function fromJson(value) {
  if (Array.isArray(value)) return value.map(fromJson);
  if (value === null || typeof value !== "object") return value;
  return new Map(Object.entries(value).map(([key, item]) => [key, fromJson(item)]));
}

/** What a compiled template writes of a conversation. names: special tokens by what they are for. */
function render(template, messages, names, addGenerationPrompt) {
  const scope = Object.assign(Object.create(null), FUNCTIONS, names, {
    messages: fromJson(messages),
    tools: null,
    documents: null,
    add_generation_prompt: addGenerationPrompt,
  });
  return template(scope);
}
