// Python's meaning of what javascript.py translates. An int is a BigInt, a float a number, a bool a boolean, None null,
// a str a string, a list an array, a tuple a frozen array. An object with $v is of a class derived from int or float.

const $modules = {},
  $loaded = {};
const $load = (name) => ($loaded[name] ??= $modules[name]());

// Values

const $tuple = Object.freeze;
const $raw = (x) => (typeof x === "boolean" ? BigInt(x) : (x?.$v ?? x));
const $same = Symbol("NotImplemented"),
  NotImplemented = $same;
const $ids = new WeakMap();
const $id = (x) => $ids.get(x) ?? ($ids.set(x, ++$id.last), $id.last);
$id.last = 0;

// A text that is equal for equal values: the key of dicts and sets.
function $key(x) {
  x = $raw(x);
  if (typeof x === "bigint") return `n${x}`;
  if (typeof x === "number") return Number.isInteger(x) ? `n${BigInt(x)}` : `f${x}`;
  if (typeof x === "string") return `s${x.length}:${x}`;
  if (x === null) return "0";
  if (Array.isArray(x)) return `(${x.map($key).join()})`;
  if (x.$fields) return (x.$text ??= `o${$id(x.constructor)}(${x.$fields.map((one) => $key(x[one])).join()})`);
  if (x instanceof $Set) return `{${[...x].map($key).sort().join()}}`;
  if (x instanceof $Dict) return `{${x.items().map($key).sort().join()}}`;
  return `i${$id(x)}`;
}

class $Dict {
  constructor(pairs) {
    this.$map = new Map();
    for (const [key, value] of pairs) this.$put(key, value);
  }
  $put(key, value) {
    const text = $key(key),
      entry = this.$map.get(text);
    entry ? (entry[1] = value) : this.$map.set(text, [key, value]);
  }
  $has(key) {
    return this.$map.has($key(key));
  }
  $delete(key) {
    this.$map.delete($key(key));
  }
  get size() {
    return this.$map.size;
  }
  get(key, otherwise = null) {
    const entry = this.$map.get($key(key));
    return entry ? entry[1] : otherwise;
  }
  items() {
    return [...this.$map.values()].map(([key, value]) => $tuple([key, value]));
  }
  keys() {
    return [...this];
  }
  values() {
    return Array.from(this.$map.values(), (entry) => entry[1]);
  }
  setdefault(key, value) {
    if (!this.$has(key)) this.$put(key, value);
    return this.get(key);
  }
  update(other) {
    for (const [key, value] of dict(other).items()) this.$put(key, value);
    return null;
  }
  $pop(key, otherwise = null) {
    const value = this.get(key, otherwise);
    this.$delete(key);
    return value;
  }
  *[Symbol.iterator]() {
    for (const [key] of this.$map.values()) yield key;
  }
}

class $Set extends $Dict {
  constructor(values) {
    super(Array.from(values, (value) => [value, value]));
  }
  add(value) {
    this.$put(value, value);
    return null;
  }
}

// Classes and functions

const $Keywords = function () {},
  $k = $Keywords.prototype; // keyword arguments: an object made from $k
const $named = (mapping) => Object.fromEntries(mapping.items());

function $def(name, signature, defaults, code) {
  const names = signature ? signature.split(" ") : [],
    at = {};
  const star = names.findIndex((one) => /^\*(?!\*)/.test(one)),
    last = names.at(-1);
  const rest = last?.startsWith("**") ? last.slice(2) : null;
  const parameters = names.filter((one) => !one.startsWith("*"));
  const positional = star < 0 ? parameters.length : star;
  parameters.forEach((one, i) => (at[one.replace("=", "")] = i));
  const optional = parameters
    .map((one, i) => [one, i])
    .filter(([one]) => one.endsWith("="))
    .map(([, i]) => i);
  const whole = star < 0 && rest === null && !optional.length ? parameters.length : -1;
  const wrong = (why) => TypeError(`${name}() ${why}`);
  const bound = (...given) => {
    const keywords = given.at(-1) instanceof $Keywords ? given.pop() : null;
    if (!keywords && given.length === whole) return code(...given);
    const values = given.slice(0, positional),
      more = given.slice(positional),
      others = [];
    if (more.length && !(star >= 0 && names[star].length > 1)) throw wrong("has too many arguments");
    for (const key in keywords) {
      if (key in at) values[at[key]] = keywords[key];
      else if (rest !== null) others.push([key, keywords[key]]);
      else throw wrong(`got an unexpected keyword argument '${key}'`);
    }
    optional.forEach((i, nth) => {
      if (values[i] === undefined) values[i] = defaults[nth];
    });
    for (let i = 0; i < parameters.length; i++) if (values[i] === undefined) throw wrong(`lacks ${parameters[i]}`);
    if (star >= 0 && names[star].length > 1) values.splice(positional, 0, $tuple(more));
    if (rest !== null) values.push(new $Dict(others));
    return code(...values);
  };
  return Object.assign(bound, { $name: name });
}

function $class(name, bases, decorated, fields, body) {
  const X = function (...given) {
    if (X.$members) return X.$members.find((one) => $eq(one.value, given[0]));
    if (X.__new__) return X.__new__(X, ...given);
    const self = Object.create(X.prototype);
    X.__init__?.(self, ...given);
    return self;
  };
  Object.defineProperty(X, "name", { value: name });
  const base = bases.at(-1); // what the other bases define comes before it
  if (base) Object.setPrototypeOf(X, base);
  X.prototype = Object.create(base?.prototype ?? Object.prototype, { constructor: { value: X } });
  X.$ancestors = new Set([X, ...bases.flatMap((one) => [...one.$ancestors])]);
  const $c = (X.$own = Object.assign({}, ...bases.slice(0, -1).map((one) => one.$own)));
  body($c);
  if (decorated) $dataclass(X, base, fields);
  if (base === Enum) X.$members = [];
  for (const [key, value] of Object.entries($c)) {
    if (base === Enum) X.$members.push((X[key] = Object.assign(Object.create(X.prototype), { name: key, value })));
    else if (value instanceof $Property) Object.defineProperty(X.prototype, key, value.of(key));
    else {
      X[key] = value;
      X.prototype[key] =
        value?.$name && !value.$ancestors
          ? function (...given) {
              return value(this, ...given);
            }
          : value;
    }
  }
  if ($c.__iter__)
    X.prototype[Symbol.iterator] = function () {
      return this.__iter__()[Symbol.iterator]();
    };
  return X;
}

function $dataclass(X, base, own) {
  const names = [...(base?.prototype.$fields ?? []), ...own.map(([field]) => field).filter((field) => field !== "_")];
  const defaults = { ...base?.$defaults, ...Object.fromEntries(own.filter((one) => one.length > 1)) };
  X.$defaults = defaults;
  X.prototype.$fields = names;
  const only = own.findIndex(([field]) => field === "_"),
    signature = names.map((n) => n + (n in defaults ? "=" : ""));
  if (only >= 0) signature.splice(only, 0, "*");
  X.__init__ = $def(
    X.name,
    ["$self", ...signature].join(" "),
    names.filter((n) => n in defaults).map((n) => defaults[n]),
    (self, ...values) => {
      names.forEach((field, i) => (self[field] = values[i]));
      self.__post_init__?.();
    },
  );
}

class $Property {
  constructor(compute, cached) {
    this.compute = compute;
    this.cached = cached;
  }
  of(name) {
    const { compute, cached } = this;
    return {
      get() {
        const value = compute(this);
        if (cached) Object.defineProperty(this, name, { value });
        return value;
      },
    };
  }
}
const property = (compute) => new $Property(compute, false),
  cached_property = (compute) => new $Property(compute, true);
const lru_cache = () => (compute) => {
  const results = new Map();
  return Object.assign(
    (...given) => {
      const text = given
        .map((one) => (one instanceof $Keywords ? $key(dict(one)) : `${$type(one)}${$key(one)}`))
        .join();
      if (!results.has(text)) {
        if (results.size >= 64) results.delete(results.keys().next().value);
        results.set(text, compute(...given));
      }
      return results.get(text);
    },
    { $name: compute.$name },
  );
};
const $type = (x) => x?.constructor?.name;
const Enum = function () {};
Enum.$ancestors = new Set([Enum]);
Enum[Symbol.iterator] = function () {
  return this.$members[Symbol.iterator]();
};
const Mapping = $class("Mapping", [], false, [], () => {});
Object.assign(Mapping.prototype, {
  keys() {
    return [...this];
  },
  values() {
    return [...this].map((key) => this.__getitem__(key));
  },
  items() {
    return [...this].map((key) => $tuple([key, this.__getitem__(key)]));
  },
  get(key, otherwise = null) {
    return [...this].some((one) => $eq(one, key)) ? this.__getitem__(key) : otherwise;
  },
});
$modules.enum = () => ({ Enum });
$modules["collections.abc"] = () => ({ Mapping });
$modules.math = () => ({ log2: (x) => Math.log2(Number($raw(x))) });
$modules.functools = () => ({ lru_cache, cached_property });
$modules.dataclasses = () => ({
  KW_ONLY: "",
  dataclass: null,
  fields: (x) => (x.$fields ?? x.prototype.$fields).map((name) => ({ name })),
  replace: (x, changes) => {
    const copy = Object.create(Object.getPrototypeOf(x));
    for (const name of x.$fields) copy[name] = name in changes ? changes[name] : x[name];
    copy.__post_init__?.();
    return copy;
  },
});
$modules.itertools = () => ({
  pairwise: (values) => [...values].slice(1).map((value, i, all) => $tuple([i ? all[i - 1] : [...values][0], value])),
  product: (...many) =>
    many.reduce((all, one) => all.flatMap((head) => [...one].map((x) => $tuple([...head, x]))), [[]]),
});

const Exception = function () {};
Exception.__new__ = (X, message = "") =>
  Object.setPrototypeOf(Object.assign(new Error(message), { args: [message] }), X.prototype);
Exception.prototype = Object.create(Error.prototype);
Exception.$ancestors = new Set([Exception]);
const [TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError] = [
  "TypeError",
  "ValueError",
  "KeyError",
  "AttributeError",
  "ZeroDivisionError",
].map((name) => $class(name, [Exception], false, [], () => {}));

// Numbers

const $number = (parse) => {
  const X = (value = 0n) => parse(value);
  X.prototype = {};
  X.__new__ = (Y, value = 0n) =>
    Y === X ? parse(value) : Object.assign(Object.create(Y.prototype), { $v: parse(value) });
  X.$ancestors = new Set([X]);
  return X;
};
const int = $number((x) => {
  if (x?.__int__) return int(x.__int__());
  x = $raw(x);
  if (typeof x === "bigint") return x;
  if (typeof x === "string" && !/^\s*[-+]?\d+\s*$/.test(x)) throw ValueError(`invalid literal for int(): ${repr(x)}`);
  return BigInt(typeof x === "number" ? Math.trunc(x) : x.trim());
});
const float = $number((x) => {
  x = $raw(x);
  return typeof x === "string" ? (/^[-+]?inf/.test(x) ? (x[0] === "-" ? -Infinity : Infinity) : Number(x)) : Number(x);
});
const $derived = (x, base) => x?.constructor?.$ancestors?.has(base) ?? false;

const $floor = (a, b) => {
  const q = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? q - 1n : q;
};
const $modulo = (a, b) => {
  const r = a % b;
  return r && r < 0 !== b < 0 ? r + b : r;
};
const $exact = 1n << 53n,
  $small = (x) => -$exact <= x && x <= $exact;
function $quotient(a, b) {
  // of two ints, rounded once
  if ($small(a) && $small(b)) return Number(a) / Number(b);
  const negative = a < 0n !== b < 0n,
    [n, d] = [a < 0n ? -a : a, b < 0n ? -b : b];
  const shift = BigInt(66 - n.toString(2).length + d.toString(2).length);
  const [top, bottom] = shift > 0n ? [n << shift, d] : [n, d << -shift];
  const quotient = Number((top / bottom) | (top % bottom ? 1n : 0n)) * 2 ** -Number(shift);
  return negative ? -quotient : quotient;
}

// An operator asks the objects first, as Python does: of the right one its reflected method if it is a subclass.
const $operator = (left, right, ints, floats, others) => (a, b) => {
  if (typeof a === "bigint" && typeof b === "bigint") return ints(a, b);
  const mine = a?.[left],
    yours = b?.[right];
  let result = NotImplemented;
  if (mine) result = mine.call(a, b);
  if (result === NotImplemented && yours && (mine || typeof a === "bigint" || typeof b.$v === "number"))
    result = yours.call(b, a);
  if (result !== NotImplemented) return result;
  const [x, y] = [$raw(a), $raw(b)];
  if (typeof x === "bigint" && typeof y === "bigint") return ints(x, y);
  if ((typeof x === "number" || typeof x === "bigint") && (typeof y === "number" || typeof y === "bigint"))
    return floats(Number(x), Number(y));
  if (others) return others(x, y);
  throw TypeError(`unsupported operands: ${repr(a)} and ${repr(b)}`);
};
const $nonzero = (compute) => (a, b) => {
  if (b == 0) throw ZeroDivisionError("division by zero");
  return compute(a, b);
};
const $joined = (a, b) => (typeof a === "string" ? a + b : Object.isFrozen(a) ? $tuple([...a, ...b]) : [...a, ...b]);
const $repeated = (a, n) => {
  if (typeof a === "string") return a.repeat(Number(n));
  const all = Array(Number(n)).fill(a).flat();
  return Object.isFrozen(a) ? $tuple(all) : all;
};
const $add = $operator(
  "__add__",
  "__radd__",
  (a, b) => a + b,
  (a, b) => a + b,
  $joined,
);
const $sub = $operator(
  "__sub__",
  "__rsub__",
  (a, b) => a - b,
  (a, b) => a - b,
  (a, b) => set([...a].filter((x) => !$in(x, b))),
);
const $mul = $operator(
  "__mul__",
  "__rmul__",
  (a, b) => a * b,
  (a, b) => a * b,
  (a, b) => (typeof a === "bigint" ? $repeated(b, a) : $repeated(a, b)),
);
const $div = $operator(
  "__truediv__",
  "__rtruediv__",
  $nonzero($quotient),
  $nonzero((a, b) => a / b),
);
const $floordiv = $operator(
  "__floordiv__",
  "__rfloordiv__",
  $nonzero($floor),
  $nonzero((a, b) => Math.floor(a / b)),
);
const $mod = $operator("__mod__", "__rmod__", $nonzero($modulo), $nonzero($modulo));
const $pow = $operator(
  "__pow__",
  "__rpow__",
  (a, b) => (b < 0n ? Number(a) ** Number(b) : a ** b),
  (a, b) => a ** b,
);
const $shl = $operator("__lshift__", "__rlshift__", (a, b) => a << b);
const $meet = (a, b) => set([...a].filter((x) => $in(x, b)));
const $union = (a, b) => {
  if (a instanceof $Set) return set([...a, ...b]);
  if (a instanceof $Dict) return dict([...a.items(), ...b.items()]);
  return typeof a === "boolean" ? a || b : typeof a === "bigint" ? a | b : [a, b].flat();
};
const $neg = (a) => (a?.__neg__ ? a.__neg__() : -$raw(a));
for (const name of ["__add__", "__sub__", "__mul__", "__floordiv__", "__mod__"])
  int[name] = (a, b) =>
    ({ __add__: $add, __sub__: $sub, __mul__: $mul, __floordiv__: $floordiv, __mod__: $mod })[name]($raw(a), $raw(b));

function $eq(a, b) {
  if (typeof a === typeof b && typeof a !== "object") return a === b;
  if (a?.__eq__) return a.__eq__(b);
  if (b?.__eq__) return b.__eq__(a);
  if (a === null || b === null) return a === b;
  return a === b || $key(a) === $key(b);
}
const $ne = (a, b) => !$eq(a, b);
function $less(a, b) {
  if (a?.__lt__) return a.__lt__(b);
  if (Array.isArray(a)) {
    const at = a.findIndex((x, i) => i < b.length && $ne(x, b[i]));
    return at < 0 ? a.length < b.length : $less(a[at], b[at]);
  }
  const [x, y] = [$raw(a), $raw(b)];
  if (x === null || y === null || (typeof x === "string") !== (typeof y === "string"))
    throw TypeError(`'<' not supported between ${repr(a)} and ${repr(b)}`);
  return x < y;
}
const $lt = $less,
  $gt = (a, b) => $less(b, a);
const $le = (a, b) => $less(a, b) || $eq(a, b),
  $ge = (a, b) => $less(b, a) || $eq(a, b);
const $is = (a, b) => a === b,
  $isnot = (a, b) => a !== b;
const $in = (x, all) =>
  typeof all === "string" ? all.includes(x) : all instanceof $Dict ? all.$has(x) : [...all].some((one) => $eq(one, x));
const $notin = (x, all) => !$in(x, all);
function $true(x) {
  if (x === null) return false;
  if (typeof x === "object") {
    if ("$v" in x) return Boolean(x.$v);
    if (Array.isArray(x)) return x.length > 0;
    if (x instanceof $Dict) return x.size > 0;
    return x.__len__ ? x.__len__() > 0n : true;
  }
  return Boolean(x);
}
const $or = (x, other) => ($true(x) ? x : other()),
  $and = (x, other) => ($true(x) ? other() : x);

// Items

const $at = (x, index) => {
  const i = Number($raw(index));
  return i < 0 ? i + x.length : i;
};
function $item(x, key) {
  if (x instanceof $Dict) {
    if (!x.$has(key)) throw KeyError(key);
    return x.get(key);
  }
  if (typeof x === "string" || Array.isArray(x)) return x[$at(x, key)];
  return x.__getitem__ ? x.__getitem__(key) : x;
}
const $set = (x, key, value) => {
  x instanceof $Dict ? x.$put(key, value) : (x[$at(x, key)] = value);
};
const $slice = (x, low, high) => {
  const part = x.slice(low === null ? 0 : Number($raw(low)), high === null ? undefined : Number($raw(high)));
  return Object.isFrozen(x) && Array.isArray(x) ? $tuple(part) : part;
};
const $gathered = (values, before, after) => {
  const all = [...values],
    end = all.length - after;
  return [...all.slice(0, before), all.slice(before, end), ...all.slice(end)];
};
const $method = (prototype, methods) => {
  for (const [name, value] of Object.entries(methods))
    Object.defineProperty(prototype, name, { value, writable: true });
};
$method(Array.prototype, {
  append(x) {
    this.push(x);
    return null;
  },
  extend(more) {
    this.push(...more);
    return null;
  },
  insert(at, x) {
    this.splice(Number(at), 0, x);
    return null;
  },
  index(x) {
    return BigInt(this.findIndex((one) => $eq(one, x)));
  },
  count(x) {
    return BigInt(this.filter((one) => $eq(one, x)).length);
  },
  $pop(at = -1n) {
    return this.splice(Number(at), 1)[0];
  },
  $sort(options) {
    this.splice(0, this.length, ...sorted(this, options));
    return null;
  },
});
$method(String.prototype, {
  join(parts) {
    return [...parts].join(this);
  },
  startswith(start) {
    return [start].flat().some((one) => this.startsWith(one));
  },
  endswith(end) {
    return [end].flat().some((one) => this.endsWith(one));
  },
  lower() {
    return this.toLowerCase();
  },
  strip() {
    return this.trim();
  },
  rstrip(characters = " \n\t") {
    let end = this.length;
    while (characters.includes(this[end - 1])) end--;
    return this.slice(0, end);
  },
  removesuffix(end) {
    return end && this.endsWith(end) ? this.slice(0, -end.length) : String(this);
  },
  $replace(from, to) {
    return this.replaceAll(from, to);
  },
  $split(separator) {
    return separator === undefined ? this.trim().split(/\s+/).filter(Boolean) : this.split(separator);
  },
});

// Built-in functions

const dict = (pairs = []) =>
  new $Dict(pairs instanceof $Keywords ? Object.entries(pairs) : pairs.items ? pairs.items() : pairs);
dict.fromkeys = (keys, value = null) => new $Dict(Array.from(keys, (key) => [key, value]));
const set = (values = []) => new $Set(values),
  frozenset = set;
const list = (values = []) => [...values],
  tuple = (values = []) => $tuple([...values]);
const bool = $true,
  str = (x) => (typeof x === "string" ? x : x?.__str__ ? x.__str__() : x instanceof Error ? x.message : repr(x));
const $kinds = new Map([
  [int, (x) => typeof x === "bigint" || typeof x === "boolean" || $derived(x, int)],
  [float, (x) => typeof x === "number" || $derived(x, float)],
  [bool, (x) => typeof x === "boolean"],
  [str, (x) => typeof x === "string"],
  [list, (x) => Array.isArray(x) && !Object.isFrozen(x)],
  [tuple, (x) => Array.isArray(x) && Object.isFrozen(x)],
  [dict, (x) => x instanceof $Dict && !(x instanceof $Set)],
  [set, (x) => x instanceof $Set],
  [Mapping, (x) => (x instanceof $Dict && !(x instanceof $Set)) || $derived(x, Mapping)],
]);
const isinstance = (x, kind) => {
  if (Array.isArray(kind)) return kind.some((one) => isinstance(x, one));
  const test = $kinds.get(kind);
  return test ? test(x) : $derived(x, kind);
};
const issubclass = (X, base) => X.$ancestors.has(base);
function type(x) {
  for (const kind of [bool, str, list, tuple, dict, set]) if ($kinds.get(kind)(x)) return kind;
  return typeof x === "bigint" ? int : typeof x === "number" ? float : (x?.constructor ?? null);
}
for (const [name, X] of Object.entries({ int, float, bool, str, list, tuple, dict, set })) X.__name__ = name;
Object.defineProperty(Function.prototype, "__name__", {
  get() {
    return this.$name ?? this.name;
  },
  set(value) {
    this.$name = value;
  },
});
const len = (x) => (x?.__len__ ? x.__len__() : BigInt(x.length ?? x.size));
const abs = (x) => ($raw(x) < 0 ? -$raw(x) : $raw(x));
const iter = (x) => x[Symbol.iterator]();
const next = (iterator, otherwise) => {
  const { done, value } = iterator.next();
  if (done && otherwise === undefined) throw ValueError("StopIteration");
  return done ? otherwise : value;
};
const range = (first, end, step = 1n) => {
  const [low, high] = end === undefined ? [0n, $raw(first)] : [$raw(first), $raw(end)],
    values = [];
  for (let at = low; step > 0n ? at < high : at > high; at += step) values.push(at);
  return values;
};
const $options = (given) => (given.at(-1) instanceof $Keywords ? given.pop() : {});
const $best =
  (better) =>
  (...given) => {
    const { key = (x) => x, default: otherwise } = $options(given);
    const values = [...(given.length === 1 ? given[0] : given)];
    if (!values.length && otherwise !== undefined) return otherwise;
    if (!values.length) throw ValueError("iterable argument is empty");
    const keys = values.map((x) => key(x));
    let best = 0;
    keys.forEach((one, i) => {
      if (better(one, keys[best])) best = i;
    });
    return values[best];
  };
const max = $best($gt),
  min = $best($lt);
const sum = (values, start = 0n) => {
  let total = start;
  for (const value of values) total = $add(total, value);
  return total;
};
const any = (values) => {
  for (const value of values) if ($true(value)) return true;
  return false;
};
const all = (values) => {
  for (const value of values) if (!$true(value)) return false;
  return true;
};
const sorted = (values, { key = (x) => x, reverse = false } = {}) => {
  const pairs = Array.from(values, (value) => [key(value), value]);
  pairs.sort(([a], [b]) => ($lt(a, b) ? -1 : $lt(b, a) ? 1 : 0) * (reverse ? -1 : 1));
  return pairs.map(([, value]) => value);
};
const reversed = (values) => [...values].reverse();
const enumerate = (values, start = 0n) => Array.from(values, (value, i) => $tuple([start + BigInt(i), value]));
const zip = (...given) => {
  $options(given);
  const lists = given.map((one) => [...one]),
    shortest = Math.min(...lists.map((one) => one.length));
  return Array.from({ length: shortest }, (_, i) => $tuple(lists.map((one) => one[i])));
};
function* map(compute, ...many) {
  for (const values of zip(...many)) yield compute(...values);
}
function* filter(test, values) {
  for (const value of values) if ($true(test === null ? value : test(value))) yield value;
}
const divmod = (a, b) => $tuple([$floordiv(a, b), $mod(a, b)]);
const round = (x, digits = null) => {
  x = $raw(x);
  if (typeof x === "bigint") return x;
  if (digits !== null) return Number(x.toFixed(Number(digits)));
  const low = Math.floor(x),
    rest = x - low;
  return BigInt(low) + (rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? 1n : 0n);
};
const hasattr = (x, name) => x?.[name] !== undefined;
const getattr = (x, name, otherwise) => {
  if (x === null) x = {};
  const value = x[name];
  if (value === undefined && otherwise === undefined) throw AttributeError(`no attribute ${name}`);
  return value === undefined ? otherwise : typeof value === "function" && !value.$ancestors ? value.bind(x) : value;
};

// Text

const $grouped = (digits, mark) => digits.replace(/^-?\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, mark));
const $power = (text) => text.replace(/e([+-])(\d)$/, "e$10$2");
function $fixed(x, digits) {
  // toFixed rounds a tie up, Python to even
  const text = x.toFixed(digits),
    scaled = Math.abs(x) * 10 ** digits;
  const tie =
    digits < 16 && scaled % 1 === 0.5 && scaled / 10 ** digits === Math.abs(x) && Math.floor(scaled) % 2 === 0;
  return tie && digits === 0 ? String(Math.sign(x) * Math.floor(scaled)) : text;
}
function $general(x, digits) {
  if (x === 0 || !Number.isFinite(x)) return repr(x).replace(".0", "");
  const exponent = Number(x.toExponential(digits - 1).split("e")[1]);
  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+(?=e|$)/, "") : text);
  if (exponent < -4 || exponent >= digits) return $power(trim(x.toExponential(digits - 1)));
  return trim(x.toFixed(Math.max(0, digits - 1 - exponent)));
}
function $format(x, spec) {
  if (!spec) return str(x);
  const [, zero, width, mark, precision, kind] = /^(0?)(\d*)([,_]?)(?:\.(\d+))?([fg%]?)$/.exec(spec);
  if (typeof x === "string") return precision ? x.slice(0, precision) : x;
  const value = $raw(x),
    digits = precision === undefined ? 6 : Number(precision);
  let text =
    kind === "f"
      ? $fixed(Number(value), digits)
      : kind === "%"
        ? $fixed(Number(value) * 100, digits) + "%"
        : kind === "g"
          ? $general(Number(value), digits || 1)
          : str(value);
  if (mark) text = $grouped(text, mark);
  return zero ? text.padStart(Number(width), "0") : text;
}
function repr(x) {
  if (x === null || x === undefined) return "None";
  if (x.__repr__) return x.__repr__();
  if (typeof x === "string") return x.includes("'") && !x.includes('"') ? `"${x}"` : `'${x.replace(/[\\']/g, "\\$&")}'`;
  if (typeof x === "boolean") return x ? "True" : "False";
  if (typeof x === "bigint") return String(x);
  if (typeof x === "number") {
    if (!Number.isFinite(x)) return x > 0 ? "inf" : x < 0 ? "-inf" : "nan";
    const size = Math.abs(x);
    if (size >= 1e16 || (size && size < 1e-4)) return $power(x.toExponential());
    return Number.isInteger(x) ? `${x}.0` : String(x);
  }
  if (Array.isArray(x)) {
    const inside = x.map(repr).join(", ");
    return Object.isFrozen(x) ? `(${inside}${x.length === 1 ? "," : ""})` : `[${inside}]`;
  }
  if (x instanceof $Set) return `{${[...x].map(repr).join(", ")}}`;
  if (x instanceof $Dict)
    return `{${x
      .items()
      .map(([key, value]) => `${repr(key)}: ${repr(value)}`)
      .join(", ")}}`;
  if ("$v" in x) return repr(x.$v);
  if (x.$fields) return `${x.constructor.name}(${x.$fields.map((field) => `${field}=${repr(x[field])}`).join(", ")})`;
  return `<${$type(x)}>`;
}

// JSON's values as Python's, and back. A number is an int if it is written as one; older browsers do not tell how.

const $json = (text) =>
  $data(
    JSON.parse(text, (_, x, context) => {
      if (typeof x !== "number") return x;
      const source = context?.source ?? (Number.isInteger(x) ? BigInt(x).toString() : "");
      return /^-?\d+$/.test(source) ? BigInt(source) : x;
    }),
  );
const $data = (x) =>
  Array.isArray(x)
    ? x.map($data)
    : x !== null && typeof x === "object"
      ? dict(Object.entries(x).map(([key, value]) => [key, $data(value)]))
      : x;
const $plain = (x) =>
  x instanceof $Dict
    ? Object.fromEntries(x.items().map(([key, value]) => [key, $plain(value)]))
    : Array.isArray(x)
      ? x.map($plain)
      : x !== null && typeof x === "object" && "$v" in x
        ? x.$v
        : x;
