// What Python means, for the formulas that translate.py writes: int is BigInt and float is Number, a tuple an array, a
// list an array that is marked, dict and set keep their order and find keys by value.
"use strict";
const $ = (() => {
  const modules = new Map(),
    LIST = Symbol("list"),
    KEY = Symbol("key");
  let objects = 0;

  class Dict {
    constructor(pairs) {
      this.map = new Map();
      for (const [k, v] of pairs) this.set(k, v);
    }
    set(key, value) {
      const at = key_of(key),
        old = this.map.get(at);
      this.map.set(at, [old ? old[0] : key, value]);
    }
    get(key) {
      return this.map.get(key_of(key));
    }
    has(key) {
      return this.map.has(key_of(key));
    }
    *[Symbol.iterator]() {
      for (const [key] of this.map.values()) yield key;
    }
  }
  class PySet extends Dict {
    constructor(items) {
      super([]);
      for (const item of items) this.set(item, true);
    }
  }
  class Range {
    constructor(a, b, step) {
      this.a = a;
      this.b = b;
      this.step = step;
    }
  }
  class Mapping {}
  class Int {
    valueOf() {
      return this.v;
    }
  } // a class that extends int
  class Float {
    valueOf() {
      return this.v;
    }
  } // a class that extends float
  class Enum {}
  class PyError extends Error {
    get args() {
      return [this.message];
    }
  }

  const fail = (kind, text) => {
    throw $[kind](text);
  };
  const is_number = (x) => typeof x === "bigint" || typeof x === "number" || typeof x === "boolean";
  const plain = (x) => (x instanceof Int || x instanceof Float ? x.v : typeof x === "boolean" ? (x ? 1n : 0n) : x);
  const as_float = (x) => Number(plain(x));

  function key_of(x) {
    x = plain(x);
    if (typeof x === "string") return "s" + x;
    if (typeof x === "bigint") return "n" + x;
    if (typeof x === "number") return Number.isInteger(x) ? "n" + BigInt(x) : "f" + x;
    if (x === null || x === undefined) return "0";
    if (Array.isArray(x)) return "t(" + x.map(key_of).join(",") + ")";
    if (x.constructor && x.$fields && x.$equal)
      return (x[KEY] ??= "o" + x.$name + "(" + x.$fields.map((f) => key_of(x[f])).join(",") + ")");
    return (x[KEY] ??= "i" + objects++);
  }

  // functions and classes

  const fn = (names, f) => {
    f.$names = names;
    return f;
  };
  function arguments_of(f, positional, named) {
    if (!Object.keys(named).length) return positional;
    const given = { ...named },
      names = f.$names ?? [],
      all = [...positional];
    for (let i = 0; i < names.length; i++) {
      if (names[i] === "**") {
        all[i] = new Dict(Object.entries(given));
        return all;
      }
      if (names[i] in given) {
        all[i] = given[names[i]];
        delete given[names[i]];
      } else if (i >= positional.length) all[i] = undefined;
    }
    for (const name in given) fail("TypeError", `unexpected keyword argument '${name}'`);
    return all;
  }
  function call(f, positional, named) {
    if (f.$builtin) return f.$builtin(positional, named);
    if (f.$new_fields) return f.$construct(positional, named);
    return f(...arguments_of(f.$init ?? f, positional, named));
  }
  const call_method = (object, name, positional, named) => {
    const f = object[name];
    if (f.$builtin || f.$new_fields || f.$init) return call(f, positional, named);
    return f.apply(object, arguments_of(f, positional, named));
  };

  function make_class(name, bases, dataclass, fields, members) {
    const builtin_base = bases.find((base) => base === $.int || base === $.float);
    const parent = builtin_base ?? bases.find((base) => base && base.prototype) ?? null;
    const C = function (...positional) {
      return C.$make(positional, {});
    };
    C.prototype = Object.create(parent ? parent.prototype : Object.prototype);
    
    C.$parent = parent;
    C.$classes = new Set([C, ...bases.flatMap((base) => [base, ...(base?.$classes ?? [])])]);
    for (const mixin of bases.filter((base) => base && base !== parent && base.prototype)) {
      Object.defineProperties(C.prototype, Object.getOwnPropertyDescriptors(mixin.prototype));
    }
    C.prototype.constructor = C.prototype.__class__ = C;
    C.prototype.$name = C.$name = C.__name__ = name;
    for (const key of parent ? Object.keys(parent) : [])
      if (!key.startsWith("$") && !(key in C)) C[key] = parent[key];
    const enumerated = parent === Enum || (parent && parent.$members);
    if (enumerated) C.$members = [];
    for (const [kind, label, value] of members) {
      if (kind === "value")
        for (const one of label) {
          if (enumerated) {
            const member = Object.create(C.prototype);
            member.name = one;
            member.value = value;
            C[one] = member;
            C.$members.push(member);
          } else {
            C.prototype[one] = value;
            C[one] = value;
          }
        }
      else if (kind === "alias") C.prototype[label] = C.prototype[value];
      else if (kind === "property") Object.defineProperty(C.prototype, label, { get: value, configurable: true });
      else if (kind === "cached_property")
        Object.defineProperty(C.prototype, label, {
          configurable: true,
          get() {
            const got = value.call(this);
            Object.defineProperty(this, label, { value: got });
            return got;
          },
        });
      else if (kind === "new") C.__new__ = value;
      else if (kind === "static") C[label] = value;
      else C.prototype[label] = value;
    }
    const inherited = parent && parent.$new_fields ? parent.$new_fields : [];
    const own = dataclass ? fields : [];
    C.$new_fields =
      dataclass || inherited.length ? [...inherited.filter((f) => !own.some((o) => o[0] === f[0])), ...own] : null;
    if (C.$new_fields && !C.$new_fields.length) C.$new_fields = null;
    if (dataclass) {
      C.prototype.$fields = C.$new_fields ? C.$new_fields.map((f) => f[0]) : [];
      C.prototype.$equal = true;
      for (const [field, value] of fields)
        if (value) {
          try {
            C[field] = C.prototype[field] = value();
          } catch {
            /* later */
          }
        }
    } else
      for (const [field, value] of fields)
        if (value) {
          C[field] = C.prototype[field] = value();
        }
    C.$construct = (positional, named) => C.$make(positional, named);
    C.$builtin = (positional, named) => C.$make(positional, named);
    C.$make = (positional, named) => {
      if (parent === Enum || (C.$members && C.$members.length))
        return C.$members.find((m) => eq(m.value, positional[0])) ?? fail("ValueError", `${positional[0]}`);
      const maker = find_static(C, "__new__");
      if (maker) return maker(...arguments_of({ $names: maker.$names }, [C, ...positional], named));
      const object = Object.create(C.prototype);
      if (object instanceof Int) {
        object.v = whole(positional[0] ?? 0n);
        return object;
      }
      if (object instanceof Float) {
        object.v = as_float(positional[0] ?? 0);
        return object;
      }
      if (object instanceof PyError) {
        object.message = String(positional[0] ?? "");
        return object;
      }
      if (C.$new_fields) {
        const left = { ...named };
        C.$ordered ??= [...C.$new_fields.filter((f) => !f[2]), ...C.$new_fields.filter((f) => f[2])];
        C.$ordered.forEach(([field, value, keyword_only], i) => {
          if (i < positional.length && !keyword_only) object[field] = positional[i];
          else if (field in left) object[field] = left[field];
          else if (value) object[field] = value();
          else fail("TypeError", `${name} lacks '${field}'`);
          delete left[field];
        });
        for (const extra in left) fail("TypeError", `unexpected keyword argument '${extra}'`);
        if (object.__post_init__) object.__post_init__();
      } else if (object.__init__) object.__init__(...arguments_of(object.__init__, positional, named));
      return object;
    };
    return C;
  }
  const find_static = (C, name) => {
    for (let at = C; at; at = at.$parent) if (Object.hasOwn(at, name)) return at[name];
    return null;
  };

  // operators

  function special(name, reflected, a, b) {
    if (a !== null && typeof a === "object" && a[name]) {
      const got = a[name](b);
      if (got !== $.NotImplemented) return got;
    }
    if (b !== null && typeof b === "object" && reflected && b[reflected]) {
      const got = b[reflected](a);
      if (got !== $.NotImplemented) return got;
    }
    return undefined;
  }
  function arithmetic(name, whole_numbers, floats) {
    const own = `__${name}__`,
      reflected = `__r${name}__`;
    return (a, b) => {
      if (typeof a === "bigint" && typeof b === "bigint") return whole_numbers(a, b);
      const got = special(own, reflected, a, b);
      if (got !== undefined) return got;
      const x = plain(a),
        y = plain(b);
      if (typeof x === "bigint" && typeof y === "bigint") return whole_numbers(x, y);
      if (is_number(x) && is_number(y)) return floats(Number(x), Number(y));
      return sequences(name, x, y);
    };
  }
  function sequences(name, x, y) {
    if (name === "add" && typeof x === "string" && typeof y === "string") return x + y;
    if (name === "add" && Array.isArray(x) && Array.isArray(y)) return x[LIST] ? as_list([...x, ...y]) : [...x, ...y];
    if (name === "mul" && Array.isArray(x)) {
      const all = [];
      for (let i = 0n; i < y; i++) all.push(...x);
      return x[LIST] ? as_list(all) : all;
    }
    if (name === "mul" && Array.isArray(y)) return sequences(name, y, x);
    if (name === "mul" && typeof x === "string") return x.repeat(Number(y));
    if (name === "sub" && x instanceof PySet) return new PySet([...iter(x)].filter((one) => !has(one, y)));
    return fail("TypeError", `${name} of ${repr(x)} and ${repr(y)}`);
  }
  const zero = (b) => {
    if (!b) fail("ValueError", "division by zero");
  };
  const floor_whole = (a, b) => {
    zero(b);
    const q = a / b;
    return a % b !== 0n && a < 0n !== b < 0n ? q - 1n : q;
  };
  const add = arithmetic(
    "add",
    (a, b) => a + b,
    (a, b) => a + b,
  );
  const sub = arithmetic(
    "sub",
    (a, b) => a - b,
    (a, b) => a - b,
  );
  const mul = arithmetic(
    "mul",
    (a, b) => a * b,
    (a, b) => a * b,
  );
  const div = arithmetic(
    "truediv",
    (a, b) => {
      zero(b);
      return Number(a) / Number(b);
    },
    (a, b) => {
      zero(b);
      return a / b;
    },
  );
  const floordiv = arithmetic("floordiv", floor_whole, (a, b) => {
    zero(b);
    return Math.floor(a / b);
  });
  const mod = arithmetic(
    "mod",
    (a, b) => a - b * floor_whole(a, b),
    (a, b) => {
      zero(b);
      return a - b * Math.floor(a / b);
    },
  );
  const pow = arithmetic(
    "pow",
    (a, b) => (b < 0n ? Number(a) ** Number(b) : a ** b),
    (a, b) => a ** b,
  );
  const negative = (a) => (a !== null && typeof a === "object" && a.__neg__ ? a.__neg__() : -plain(a));
  const shift = (a, b) => plain(a) << plain(b);
  const bitand = (a, b) =>
    a instanceof PySet ? new PySet([...iter(a)].filter((one) => has(one, b))) : plain(a) & plain(b);
  function bitor(a, b) {
    if (a instanceof PySet) return new PySet([...iter(a), ...iter(b)]);
    if (a instanceof Dict) return new Dict([...entries(a), ...entries(b)]);
    if (typeof a === "function" || Array.isArray(a)) return [a, b].flat();
    return plain(a) | plain(b);
  }
  const iadd = (a, b) => {
    if (Array.isArray(a) && a[LIST]) {
      a.push(...iter(b));
      return a;
    }
    return add(a, b);
  };

  function eq(a, b) {
    const got = special("__eq__", "__eq__", a, b);
    if (got !== undefined) return got;
    if (typeof a === "function" || typeof b === "function") return a === b;
    return key_of(a) === key_of(b);
  }
  const ne = (a, b) => !eq(a, b);
  function compare(name, reflected, test) {
    return (a, b) => {
      const got = special(name, reflected, a, b);
      if (got !== undefined) return got;
      const x = plain(a),
        y = plain(b);
      if (Array.isArray(x) && Array.isArray(y)) {
        const at = x.findIndex((one, i) => i >= y.length || !eq(one, y[i]));
        return at < 0
          ? test(BigInt(x.length), BigInt(y.length))
          : at >= y.length
            ? test(1, 0)
            : $[name.slice(2, 4)](x[at], y[at]);
      }
      if (x === null || y === null || typeof x === "object" || typeof y === "object")
        return fail("TypeError", `${repr(a)} and ${repr(b)} have no order`);
      return test(x, y);
    };
  }
  const lt = compare("__lt__", "__gt__", (x, y) => x < y),
    le = compare("__le__", "__ge__", (x, y) => x <= y);
  const gt = compare("__gt__", "__lt__", (x, y) => x > y),
    ge = compare("__ge__", "__le__", (x, y) => x >= y);
  function has(x, inside) {
    if (typeof inside === "string") return inside.includes(x);
    if (inside instanceof Dict) return inside.has(x);
    if (inside.__contains__) return inside.__contains__(x);
    for (const one of iter(inside)) if (eq(one, x)) return true;
    return false;
  }
  function truth(x) {
    if (x === null || x === undefined || x === false || x === "") return false;
    if (typeof x === "bigint") return x !== 0n;
    if (typeof x === "number") return x !== 0;
    if (Array.isArray(x)) return x.length > 0;
    if (x instanceof Dict) return x.map.size > 0;
    if (x instanceof Int) return x.v !== 0n;
    if (x instanceof Float) return x.v !== 0;
    if (x.__bool__) return x.__bool__();
    if (x.__len__) return x.__len__() !== 0n;
    return true;
  }

  // sequences and mappings

  const as_list = (array) => {
    Object.defineProperty(array, LIST, { value: true });
    return array;
  };
  function iter(x) {
    if (Array.isArray(x) || typeof x === "string") return x;
    if (x instanceof Dict) return [...x.map.values()].map(([key]) => key);
    if (x instanceof Range) {
      const all = [];
      for (let i = x.a; x.step > 0n ? i < x.b : i > x.b; i += x.step) all.push(i);
      return all;
    }
    if (x && x.__iter__) return iter(x.__iter__());
    if (typeof x === "function" && x.$members) return x.$members;
    if (x && x[Symbol.iterator]) return x;
    return fail("TypeError", `${repr(x)} is not iterable`);
  }
  const array = (x) => [...iter(x)];
  function entries(x) {
    if (x instanceof Dict) return [...x.map.values()];
    return array(x).map((key) => [key, x.__getitem__(key)]);
  }
  const as_object = (x) => Object.fromEntries(entries(x));
  function place(x, index) {
    const at = Number(plain(index));
    return at < 0 ? at + x.length : at;
  }
  function item(x, index) {
    if (x instanceof Dict) {
      const got = x.get(index);
      return got ? got[1] : fail("KeyError", repr(index));
    }
    if (Array.isArray(x) || typeof x === "string") {
      const at = place(x, index);
      return at in Object(x) ? x[at] : fail("IndexError", `${at}`);
    }
    if (typeof x === "function" && x.$members) return x[index];
    return x.__getitem__(index);
  }
  function set_item(x, index, value) {
    if (x instanceof Dict) x.set(index, value);
    else if (Array.isArray(x)) x[place(x, index)] = value;
    else x.__setitem__(index, value);
  }
  const del_item = (x, index) => {
    if (x instanceof Dict) x.map.delete(key_of(index));
    else x.splice(place(x, index), 1);
  };
  function slice(x, from, to) {
    const got = x.slice(from === null ? 0 : Number(plain(from)), to === null ? undefined : Number(plain(to)));
    return Array.isArray(x) && x[LIST] ? as_list(got) : got;
  }
  function unpack(x, size, star) {
    const all = array(x),
      n = Number(size),
      at = Number(star);
    if (at < 0) {
      if (all.length !== n) fail("ValueError", `expected ${n} values, got ${all.length}`);
      return all;
    }
    const after = n - 1 - at;
    return [...all.slice(0, at), as_list(all.slice(at, all.length - after)), ...all.slice(all.length - after)];
  }

  const METHODS = {
    append: (x) => (one) => {
      x.push(one);
      return null;
    },
    extend: (x) => (more) => {
      x.push(...iter(more));
      return null;
    },
    insert: (x) => (at, one) => {
      x.splice(Number(at), 0, one);
      return null;
    },
    index: (x) => (one) => {
      const at = array(x).findIndex((other) => eq(other, one));
      return at < 0 ? fail("ValueError", "not there") : BigInt(at);
    },
    pop: (x) => (key, other) => {
      if (Array.isArray(x)) return key === undefined ? x.pop() : x.splice(place(x, key), 1)[0];
      const got = x.get(key);
      x.map.delete(key_of(key));
      return got ? got[1] : other !== undefined ? other : fail("KeyError", repr(key));
    },
    sort: (x) => {
      const f = () => fail("TypeError", "sort takes a key");
      f.$builtin = (_, named) => {
        const got = sorted(x, named.key, named.reverse);
        x.splice(0, x.length, ...got);
        return null;
      };
      return f;
    },
    add: (x) => (one) => {
      x.set(one, true);
      return null;
    },
    items: (x) => () => entries(x),
    keys: (x) => () => array(x),
    values: (x) => () => entries(x).map(([, value]) => value),
    get:
      (x) =>
      (key, other = null) =>
        x instanceof Dict ? (x.get(key) ?? [0, other])[1] : has(key, x) ? item(x, key) : other,
    setdefault: (x) => (key, value) => {
      if (!x.has(key)) x.set(key, value);
      return x.get(key)[1];
    },
    update: (x) => (other) => {
      for (const [k, v] of entries(other)) x.set(k, v);
      return null;
    },
    fromkeys:
      () =>
      (keys, value = null) =>
        new Dict(array(keys).map((key) => [key, value])),
    join: (x) => (parts) => array(parts).join(x),
    split: (x) => (by) => as_list(by === undefined ? x.trim().split(/\s+/) : x.split(by)),
    startswith: (x) => (start) => [start].flat().some((one) => x.startsWith(one)),
    endswith: (x) => (end) => [end].flat().some((one) => x.endsWith(one)),
    lower: (x) => () => x.toLowerCase(),
    replace: (x) => (a, b) => x.replaceAll(a, b),
    strip: (x) => (some) => strip(strip(x, some, true), some, false),
    rstrip: (x) => (some) => strip(x, some, false),
  };
  function strip(x, some, left) {
    const cut = (c) => (some === undefined ? /\s/.test(c) : some.includes(c));
    let a = 0,
      b = x.length;
    while (left && a < b && cut(x[a])) a++;
    while (!left && a < b && cut(x[b - 1])) b--;
    return x.slice(a, b);
  }
  const method = (x, name) => {
    if (x !== null && typeof x === "object" && !(x instanceof Dict) && !Array.isArray(x) && x[name])
      return x[name].bind(x);
    if (typeof x === "function" && x !== $.dict && x[name]) return x[name];
    return METHODS[name](x);
  };

  // built-in functions

  const builtin = (names, f) => {
    f.$builtin = (positional, named) => f(...arguments_of({ $names: names }, positional, named));
    return f;
  };
  const identity = (x) => x;
  function whole(x) {
    if (x !== null && typeof x === "object" && x.__int__) return whole(x.__int__());
    x = plain(x);
    if (typeof x === "bigint") return x;
    if (typeof x === "number")
      return Number.isFinite(x) ? BigInt(Math.trunc(x)) : fail("ValueError", "cannot convert to int");
    return BigInt(x.trim().replaceAll("_", ""));
  }
  const sorted = (x, key = identity, reverse = false) => {
    const rows = array(x).map((one) => [key(one), one]);
    rows.sort((a, b) => (lt(a[0], b[0]) ? -1 : lt(b[0], a[0]) ? 1 : 0));
    return as_list((reverse ? rows.reverse() : rows).map(([, one]) => one));
  };
  const extreme = (better) => {
    const f = (...positional) => best(positional.length === 1 ? array(positional[0]) : positional, identity);
    const best = (all, key, other) => {
      if (!all.length) return other !== undefined ? other : fail("ValueError", "of nothing");
      let [found, value] = [all[0], key(all[0])];
      for (const one of all.slice(1)) {
        const now = key(one);
        if (better(now, value)) [found, value] = [one, now];
      }
      return found;
    };
    f.$builtin = (positional, named) =>
      best(positional.length === 1 ? array(positional[0]) : positional, named.key ?? identity, named.default);
    return f;
  };
  function round(x, digits) {
    const value = as_float(x);
    if (digits !== undefined) return Number(value.toFixed(Number(digits)));
    const below = Math.floor(value),
      rest = value - below;
    return BigInt(rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1);
  }
  function type(x) {
    if (typeof x === "bigint") return $.int;
    if (typeof x === "number") return $.float;
    if (typeof x === "boolean") return $.bool;
    if (typeof x === "string") return $.str;
    if (Array.isArray(x)) return x[LIST] ? $.list : $.tuple;
    return x instanceof Dict ? $.dict : x === null ? null : x.constructor;
  }
  function isinstance(x, kind) {
    if (Array.isArray(kind)) return kind.some((one) => isinstance(x, one));
    if (kind === $.int) return typeof x === "bigint" || typeof x === "boolean" || x instanceof Int;
    if (kind === $.float) return typeof x === "number" || x instanceof Float;
    if (kind === $.bool) return typeof x === "boolean";
    if (kind === $.str) return typeof x === "string";
    if (kind === $.list || kind === $.tuple || kind === $.dict) return type(x) === kind;
    if (kind === $.object || (kind === Mapping && x instanceof Dict)) return true;
    if (kind.$error) return x instanceof PyError && (x.$kind === kind.$error || x instanceof kind);
    return x !== null && typeof x === "object" && (x instanceof kind || !!x.constructor.$classes?.has(kind));
  }
  function repr(x) {
    if (typeof x === "string") return `'${x}'`;
    if (x !== null && typeof x === "object" && x.__repr__) return x.__repr__();
    if (Array.isArray(x))
      return x[LIST] ? `[${x.map(repr).join(", ")}]` : `(${x.map(repr).join(", ")}${x.length === 1 ? "," : ""})`;
    if (x instanceof Dict)
      return `{${entries(x)
        .map(([k, v]) => `${repr(k)}: ${repr(v)}`)
        .join(", ")}}`;
    if (x !== null && typeof x === "object" && x.$fields)
      return `${x.$name}(${x.$fields.map((f) => `${f}=${repr(x[f])}`).join(", ")})`;
    return str(x);
  }
  function str(x) {
    if (x === null || x === undefined) return "None";
    if (typeof x === "boolean") return x ? "True" : "False";
    if (typeof x === "number") return Number.isInteger(x) && Math.abs(x) < 1e16 ? x.toFixed(1) : String(x);
    if (typeof x === "object") {
      if (x.__str__) return x.__str__();
      if (x instanceof PyError) return x.message;
      if (x instanceof Int || x instanceof Float) return str(x.v);
      return x.$name && !x.$fields && x.name ? `${x.$name}.${x.name}` : repr(x);
    }
    return typeof x === "function" ? (x.$name ?? x.name) : String(x);
  }
  const grouped = (digits, mark) => digits.replace(/\B(?=(\d{3})+(?!\d))/g, mark);
  function general(value, digits) {
    if (value === 0) return "0";
    const power = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(digits)))));
    if (power < -4 || power >= digits)
      return value
        .toExponential(digits - 1)
        .replace(/\.?0+e/, "e")
        .replace(/e([+-])(\d)$/, "e$10$2");
    return String(Number(value.toPrecision(digits)));
  }
  function format(x, conversion, spec) {
    if (conversion === "r") x = repr(x);
    if (!spec) return typeof x === "string" ? x : str(x);
    const value = plain(x),
      [, comma, precision, kind] = /^([,_]?)(?:\.(\d+))?([a-z%]?)$/.exec(spec);
    if (typeof x === "string") return x.slice(0, Number(precision));
    if (typeof value === "bigint" && !kind) return grouped(String(value), comma);
    if (kind === "g") return general(Number(value), precision ? Number(precision) : 6);
    const number = kind === "%" ? Number(value) * 100 : Number(value),
      fixed = number.toFixed(Number(precision ?? 6));
    const [before, after] = fixed.split(".");
    return (comma ? grouped(before, comma) : before) + (after ? "." + after : "") + (kind === "%" ? "%" : "");
  }

  const error = (kind, base = PyError) => {
    const made = (text) => {
      const one = Object.create(made.prototype);
      one.message = typeof text === "string" ? text : text === undefined ? "" : str(text);
      one.$kind = kind;
      return one;
    };
    made.prototype = Object.create(base.prototype);
    made.prototype.$kind = kind;
    made.$error = kind;
    made.$name = kind;
    made.prototype.name = kind;
    return made;
  };
  function replace(object, changes) {
    const C = object.constructor,
      given = {};
    for (const field of object.$fields) given[field] = field in changes ? changes[field] : object[field];
    for (const name in changes) if (!object.$fields.includes(name)) fail("TypeError", `no field '${name}'`);
    return C.$make([], given);
  }
  const replace_function = (object) => replace(object, {});
  replace_function.$builtin = ([object], named) => replace(object, named);

  Int.__new__ = null;
  const int = (x = 0n) => whole(x);
  int.prototype = Int.prototype;
  int.__new__ = (cls, value) => {
    const one = Object.create(cls.prototype);
    one.v = whole(value);
    return one;
  };
  for (const [name, operator] of Object.entries({ add, sub, mul, floordiv, mod }))
    int[`__${name}__`] = (a, b) => operator(plain(a), plain(b));
  const float = (x = 0) => {
    if (typeof x === "string") return x === "inf" ? Infinity : Number(x);
    return as_float(x);
  };
  float.prototype = Float.prototype;
  const dict = (x = []) => new Dict(x instanceof Dict || (x && x.__getitem__) ? entries(x) : array(x).map(array));
  dict.$builtin = ([x], named) => new Dict([...(x ? entries(dict(x)) : []), ...Object.entries(named)]);

  const zip = (...all) => {
    const rows = all.map(array),
      n = Math.min(...rows.map((row) => row.length));
    return Array.from({ length: n }, (_, i) => rows.map((row) => row[i]));
  };
  zip.$builtin = (positional) => zip(...positional);

  const api = {
    fn,
    call,
    call_method,
    class: make_class,
    add,
    sub,
    mul,
    div,
    floordiv,
    mod,
    pow,
    negative,
    shift,
    bitand,
    bitor,
    iadd,
    eq,
    ne,
    lt,
    le,
    gt,
    ge,
    has,
    truth,
    item,
    set_item,
    del_item,
    slice,
    unpack,
    as_list,
    iter,
    entries,
    as_object,
    method,
    format,
    bound: (x, name) =>
      typeof x === "object" && typeof x[name] === "function" && !x[name].prototype?.$name ? x[name].bind(x) : x[name],
    hasnt: (x, inside) => !has(x, inside),
    is: (a, b) => a === b || (a ?? null) === (b ?? null),
    isnt: (a, b) => (a ?? null) !== (b ?? null),
    and: (a, b) => (truth(a) ? b() : a),
    or: (a, b) => (truth(a) ? a : b()),
    module: (name, factory) => modules.set(name, { factory, names: null }),
    from: (module, name) => {
      const one = modules.get(module);
      if (!one) throw Error(`no module ${module}`);
      one.names ??= one.factory();
      if (!(name in one.names)) {
        const inner = `${module}.${name}`;
        if (modules.has(inner)) return new Proxy({}, { get: (_, one) => api.from(inner, one) });
        throw Error(`${module} has no ${name}`);
      }
      return one.names[name]();
    },
    int,
    float,
    dict,
    str,
    repr,
    type,
    isinstance,
    round,
    sorted: builtin(["x", "key", "reverse"], sorted),
    bool: (x = false) => truth(x),
    list: (x = []) => as_list(array(x)),
    tuple: (x = []) => array(x),
    object: class {},
    set: (x = []) => new PySet(array(x)),
    frozenset: (x = []) => new PySet(array(x)),
    abs: (x) => {
      const value = plain(x);
      return value < 0 ? -value : value;
    },
    all: (x) => array(x).every(truth),
    any: (x) => array(x).some(truth),
    divmod: (a, b) => [floordiv(a, b), mod(a, b)],
    enumerate: builtin(["x", "start"], (x, start = 0n) => array(x).map((one, i) => [BigInt(i) + start, one])),
    filter: (f, x) => array(x).filter((one) => truth(f === null ? one : f(one))),
    getattr: (x, name, other) => {
      const got = x[name];
      return got !== undefined ? got : other !== undefined ? other : fail("AttributeError", name);
    },
    hasattr: (x, name) => x[name] !== undefined,
    len: (x) =>
      x instanceof Dict
        ? BigInt(x.map.size)
        : x.__len__
          ? x.__len__()
          : BigInt(x instanceof Range ? iter(x).length : x.length),
    map: (f, ...all) => zip(...all).map((row) => f(...row)),
    max: extreme(gt),
    min: extreme(lt),
    next: (x, other) => {
      for (const one of iter(x)) return one;
      return other !== undefined ? other : fail("StopIteration", "");
    },
    range: (a, b, step = 1n) =>
      b === undefined ? new Range(0n, plain(a), step) : new Range(plain(a), plain(b), step),
    reversed: (x) => array(x).reverse(),
    sum: (x, start = 0n) => array(x).reduce((total, one) => add(total, one), start),
    zip,
    NotImplemented: Symbol("NotImplemented"),
    ...Object.fromEntries(
      ["ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "StopIteration"].map((kind) => [
        kind,
        error(kind),
      ]),
    ),
    libraries: {
      dataclasses: { dataclass: null, KW_ONLY: null, replace: replace_function, field: null },
      collections_abc: { Mapping, Iterator: null, Iterable: null, Callable: null },
      enum: { Enum },
      functools: { lru_cache: null, cached_property: null },
      itertools: {
        product: (...all) =>
          all.map(array).reduce((rows, more) => rows.flatMap((row) => more.map((one) => [...row, one])), [[]]),
      },
      difflib: { get_close_matches: builtin(["a", "b", "n"], () => as_list([])) },
    },
  };
  return api;
})();
