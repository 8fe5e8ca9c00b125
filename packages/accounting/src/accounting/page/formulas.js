$.module("accounting.page.questions", () => {
let ALONE, ATTENTION_KERNELS, Breakdown, ByteRate, Bytes, CHECKPOINTINGS, CHOICES, Count, DEVICES, Device, INTERCONNECTS, Interconnect, Layout, OPTIMIZERS, PRECISIONS, Policy, QUESTION, SHAPES, TransformerShape, accuracy, device, forward_flops, from_config, fullest, human, inference_memory, longest_context, max_batch_size, max_sequences, named, parameters, step_time, training_flops;


Breakdown = $.from("accounting.breakdown", "Breakdown");
Layout = $.from("accounting.cluster.layout", "Layout");
fullest = $.from("accounting.cluster.memory", "fullest");
forward_flops = $.from("accounting.counting.flops", "forward_flops");
training_flops = $.from("accounting.counting.flops", "training_flops");
parameters = $.from("accounting.counting.parameters", "parameters");
DEVICES = $.from("accounting.hardware.devices", "DEVICES");
Device = $.from("accounting.hardware.devices", "Device");
device = $.from("accounting.hardware.devices", "device");
INTERCONNECTS = $.from("accounting.hardware.interconnect", "INTERCONNECTS");
Interconnect = $.from("accounting.hardware.interconnect", "Interconnect");
inference_memory = $.from("accounting.memory.inference", "inference_memory");
from_config = $.from("accounting.models.families", "from_config");
SHAPES = $.from("accounting.models.published", "SHAPES");
accuracy = $.from("accounting.planning.accuracy", "accuracy");
longest_context = $.from("accounting.planning.fitting", "longest_context");
max_batch_size = $.from("accounting.planning.fitting", "max_batch_size");
max_sequences = $.from("accounting.planning.inference", "max_sequences");
step_time = $.from("accounting.planning.step_time", "step_time");
ATTENTION_KERNELS = $.from("accounting.policy", "ATTENTION_KERNELS");
CHECKPOINTINGS = $.from("accounting.policy", "CHECKPOINTINGS");
OPTIMIZERS = $.from("accounting.policy", "OPTIMIZERS");
PRECISIONS = $.from("accounting.policy", "PRECISIONS");
Policy = $.from("accounting.policy", "Policy");
TransformerShape = $.from("accounting.shape", "TransformerShape");
named = $.from("accounting.shape", "named");
ByteRate = $.from("accounting.units", "ByteRate");
Bytes = $.from("accounting.units", "Bytes");
Count = $.from("accounting.units", "Count");
human = $.from("accounting.units", "human");
QUESTION = $.dict([["model", "llama-3-8b"], ["config", null], ["device", "h100"], ["devices", 8n], ["zero", 3n], ["precision", "bf16"], ["optimizer", "adamw"], ["attention", "fused"], ["checkpointing", "full"], ["batch", 1n], ["micro_batches", 8n], ["context", 4096n], ["tokens", 1000000000000n], ["price", 2.0]]);
CHOICES = $.dict([["model", $.list(SHAPES)], ["device", $.list(DEVICES)], ["zero", $.as_list([0n, 1n, 2n, 3n])], ["precision", $.list(PRECISIONS)], ["optimizer", $.list(OPTIMIZERS)], ["attention", $.list(ATTENTION_KERNELS)], ["checkpointing", $.list(CHECKPOINTINGS)]]);
ALONE = Interconnect(1n, ByteRate(1.0), ByteRate(1.0), "a single device sends nothing");
const answer = $.fn(["question"], function (question) {
let answered, asked, name, part, parts, shape;
asked = $.bitor(QUESTION, question);
parts = $.dict([["flops", _flops], ["memory", _memory], ["largest", _largest], ["time", _time], ["serving", _serving]]);
try {
shape = ($.truth($.item(asked, "config")) ? from_config($.item(asked, "config")) : named("model", $.item(asked, "model"), SHAPES));
answered = $.dict([["parameters", _parameters(shape, asked)]]);
} catch ($error) {
if (!$.isinstance($error, [$.ValueError, $.TypeError, $.KeyError])) throw $error; const error = $error;
return $.dict([["parameters", $.dict([["refused", $.str($.item(error.args, 0n))]])]]);
}
for (const $$1 of $.iter($.method(parts, "items")())) {
[name, part] = $.unpack($$1, 2n, -1n);
try {
$.set_item(answered, name, part(shape, asked));
} catch ($error) {
if (!$.isinstance($error, [$.ValueError, $.TypeError, $.KeyError])) throw $error; const error = $error;
$.set_item(answered, name, $.dict([["refused", $.str($.item(error.args, 0n))]]));
}
}
return answered;
});
const _row = $.fn(["name", "value", "words", "formula", "numbers"], function (name, value, words, formula = "", numbers = "") {
return $.dict([["name", name], ["value", value], ["words", words], ["formula", formula], ["numbers", numbers]]);
});
const _rows = $.fn(["counted"], function (counted) {
let rows, unit;
unit = counted.unit;
rows = $.as_list((() => { const $all = [];
for (const $$2 of $.iter(counted.terms)) {
let name, term;
[name, term] = $.unpack($$2, 2n, -1n);
if (!($.truth($.int(term)))) continue;
$all.push(_row(name, $.int(term), human(unit($.int(term))), term.text(), $.call_method(term, "text", [], {values: true})));} return $all; })());
return $.as_list([...$.iter(rows), _row("total", $.int(counted.total), human(counted.total))]);
});
const _policy = $.fn(["asked"], function (asked) {
return $.call(Policy, [], {precision: $.item(asked, "precision"), optimizer: $.item(asked, "optimizer"), attention_kernel: $.item(asked, "attention"), activation_checkpointing: $.item(asked, "checkpointing"), gradient_accumulation: $.gt($.item(asked, "micro_batches"), 1n)});
});
const _layout = $.fn(["asked"], function (asked) {
if ($.eq($.item(asked, "devices"), 1n)) {
return null;
}
return $.call(Layout, [], {data: $.item(asked, "devices"), zero: $.item(asked, "zero"), micro_batches: $.item(asked, "micro_batches")});
});
const _parameters = $.fn(["shape", "asked"], function (shape, asked) {
let active, counted, rows;
counted = parameters(shape);
rows = _rows(counted);
active = $.int($.call(parameters, [shape], {active: true}).total);
if ($.ne(active, $.int(counted.total))) {
$.method(rows, "append")(_row("active for a token", active, human(counted.unit(active))));
}
return $.dict([["rows", rows], ["convention", counted.convention]]);
});
const _flops = $.fn(["shape", "asked"], function (shape, asked) {
let context, forward, pairs, rows, sequences, step;
[context, pairs] = $.unpack([$.item(asked, "context"), ($.eq($.item(asked, "attention"), "eager") ? "full" : "causal")], 2n, -1n);
forward = $.call(forward_flops, [shape, context], {pairs: pairs});
sequences = $.mul($.mul($.item(asked, "batch"), $.item(asked, "devices")), $.item(asked, "micro_batches"));
step = $.call(training_flops, [shape, context, sequences], {pairs: pairs});
rows = _rows(forward);
$.method(rows, "append")(_row("training, an optimizer step", $.int(step.total), human(step.total)));
return $.dict([["rows", rows], ["convention", ["forward pass of one sequence of ", $.format(context, "", [","].join('')), "; ", $.format(forward.convention, "", "")].join('')]]);
});
const _machine = $.fn(["asked"], function (asked) {
return device($.item(asked, "device"));
});
const _memory = $.fn(["shape", "asked"], function (shape, asked) {
let groups, layout, peak, room;
layout = $.or(_layout(asked), () => $.call(Layout, [], {micro_batches: $.item(asked, "micro_batches")}));
peak = $.call(fullest, [shape, layout, $.item(asked, "batch"), $.item(asked, "context")], {policy: _policy(asked)});
groups = $.as_list((() => { const $all = [];
for (const $$3 of $.iter($.method(peak.by_group(), "items")())) {
let group, size;
[group, size] = $.unpack($$3, 2n, -1n);
if (!($.truth($.int(size)))) continue;
$all.push($.dict([["name", group.value], ["value", $.int(size)]]));} return $all; })());
room = $.int(_machine(asked).memory);
return $.dict([["rows", _rows(peak)], ["groups", groups], ["limit", room], ["fits", $.le($.int(peak.total), room)], ["convention", ["the fullest device at its peak, ", $.format(peak.moment, "", ""), "; ", $.format(peak.convention, "", "")].join('')]]);
});
const _largest = $.fn(["shape", "asked"], function (shape, asked) {
let batch, layout, length, policy, room;
[room, policy] = $.unpack([$.int(_machine(asked).memory), _policy(asked)], 2n, -1n);
layout = $.or(_layout(asked), () => $.call(Layout, [], {micro_batches: $.item(asked, "micro_batches")}));
batch = $.call(max_batch_size, [shape, room, $.item(asked, "context")], {policy: policy, layout: layout});
length = $.call(longest_context, [shape, room, $.item(asked, "batch")], {policy: policy, layout: layout});
return $.dict([["rows", $.as_list([_row("sequences of a micro-batch", batch, [$.format(batch, "", [","].join(''))].join(''), "largest batch whose peak fits"), _row("positions of a sequence", length, [$.format(length, "", [","].join(''))].join(''), "longest context whose peak fits")])], ["convention", [$.format(human(Bytes(room)), "", ""), " of the device's memory, everything else as asked"].join('')]]);
});
const _time = $.fn(["shape", "asked"], function (shape, asked) {
let context, cost, errors, factor, flops, how, joined, layout, machine, mfu, name, pairs, peak, policy, rate, rows, seconds, sequences, step, steps, took;
[machine, layout] = $.unpack([_machine(asked), $.or(_layout(asked), () => $.call(Layout, [], {micro_batches: $.item(asked, "micro_batches")}))], 2n, -1n);
joined = ($.eq($.item(asked, "devices"), 1n) ? ALONE : $.method(INTERCONNECTS, "get")(machine.name));
if ($.is(joined, null)) {
throw $.ValueError(["the links of several ", $.format(machine.name, "", ""), " are not known: ask for one device, or for another"].join(''));
}
pairs = ($.eq($.item(asked, "attention"), "eager") ? "full" : "causal");
[policy, context] = $.unpack([_policy(asked), $.item(asked, "context")], 2n, -1n);
step = $.call(step_time, [shape, layout, machine, joined, $.item(asked, "batch"), context], {policy: policy, pairs: pairs});
sequences = $.mul($.mul($.item(asked, "batch"), $.item(asked, "devices")), $.item(asked, "micro_batches"));
flops = $.int($.call(training_flops, [shape, context, sequences], {pairs: pairs}).total);
steps = $.negative($.floordiv($.negative($.item(asked, "tokens")), $.mul(sequences, context)));
[seconds, errors] = $.unpack([$.float(step.total), accuracy(shape)], 2n, -1n);
peak = $.float(machine.peak(($.eq($.item(asked, "precision"), "fp32") ? "fp32" : "bf16")));
mfu = $.div(flops, $.mul($.mul(seconds, $.item(asked, "devices")), peak));
rows = $.as_list((() => { const $all = [];
for (const $$4 of $.iter($.method(step.parts, "items")())) {
let name, part;
[name, part] = $.unpack($$4, 2n, -1n);
if (!($.truth($.float(part)))) continue;
$all.push(_row(["step: ", $.format(name, "", "")].join(''), $.float(part), human(part)));} return $all; })());
rate = $.div($.mul(sequences, context), seconds);
rows = $.iadd(rows, $.as_list([_row("an optimizer step", seconds, human(step.total), "sum of the parts above"), _row("tokens a second", rate, [$.format(rate, "", [",.0f"].join(''))].join(''), "tokens of a step/seconds of a step"), _row("MFU", mfu, [$.format(mfu, "", [".1%"].join(''))].join(''), "model FLOPs/(devices·peak·seconds)"), _row("steps", steps, [$.format(steps, "", [","].join(''))].join(''), "tokens/tokens of a step, rounded up")]));
for (const $$5 of $.iter([["shortest", errors.shortest], ["wall clock", 1.0], ["longest", errors.longest]])) {
[name, factor] = $.unpack($$5, 2n, -1n);
took = $.mul($.mul(seconds, steps), factor);
cost = $.mul($.mul($.div(took, 3600n), $.item(asked, "devices")), $.item(asked, "price"));
how = ($.eq(factor, 1.0) ? "steps·seconds of a step" : [$.format(factor, "", ["g"].join('')), "·wall clock: nine runs in ten lie between"].join(''));
$.method(rows, "append")(_row(name, took, human($.type(step.total)(took)), how));
$.method(rows, "append")(_row(["cost, ", $.format(name, "", "")].join(''), cost, [$.format(cost, "", [",.0f"].join(''))].join(''), "hours·devices·price"));
}
return $.dict([["rows", rows], ["convention", ["bound by ", $.format(step.bound, "", ""), "; ", $.format(errors.words, "", "")].join('')]]);
});
const _serving = $.fn(["shape", "asked"], function (shape, asked) {
let memory, most, rows, weights;
weights = ($.eq($.item(asked, "precision"), "fp32") ? "fp32" : "bf16");
memory = $.call(inference_memory, [shape, 1n, $.item(asked, "context")], {weights: weights, cache: weights});
most = max_sequences(shape, _machine(asked), $.item(asked, "context"));
rows = $.as_list([...$.iter(_rows(memory)), _row("sequences at once, bf16", $.int(most), [$.format($.int(most), "", [","].join(''))].join(''), "most whose memory fits")]);
return $.dict([["rows", rows], ["convention", ["one device; ", $.format(memory.convention, "", "")].join('')]]);
});
return {ALONE: () => ALONE, ATTENTION_KERNELS: () => ATTENTION_KERNELS, Breakdown: () => Breakdown, ByteRate: () => ByteRate, Bytes: () => Bytes, CHECKPOINTINGS: () => CHECKPOINTINGS, CHOICES: () => CHOICES, Count: () => Count, DEVICES: () => DEVICES, Device: () => Device, INTERCONNECTS: () => INTERCONNECTS, Interconnect: () => Interconnect, Layout: () => Layout, OPTIMIZERS: () => OPTIMIZERS, PRECISIONS: () => PRECISIONS, Policy: () => Policy, QUESTION: () => QUESTION, SHAPES: () => SHAPES, TransformerShape: () => TransformerShape, _flops: () => _flops, _largest: () => _largest, _layout: () => _layout, _machine: () => _machine, _memory: () => _memory, _parameters: () => _parameters, _policy: () => _policy, _row: () => _row, _rows: () => _rows, _serving: () => _serving, _time: () => _time, accuracy: () => accuracy, answer: () => answer, device: () => device, forward_flops: () => forward_flops, from_config: () => from_config, fullest: () => fullest, human: () => human, inference_memory: () => inference_memory, longest_context: () => longest_context, max_batch_size: () => max_batch_size, max_sequences: () => max_sequences, named: () => named, parameters: () => parameters, step_time: () => step_time, training_flops: () => training_flops};
});
$.module("accounting.units", () => {
let ByteRate, Bytes, Count, FLOPRate, FLOPs, Measure, Parameters, Quantity, Seconds, TokenRate, Tokens, _BINARY, _DECIMAL, _QUOTIENTS;

Quantity = $.class("Quantity", [], false, [["_plain", () => $.float, false]], [
["value", ["unit"], ""],
["method", "_with_unit", $.fn(["value"], function (value) {
const self = this;
let unit;
unit = $.type(self);
return unit(value);
})],
["method", "_other", $.fn(["other", "verb"], function (other, verb) {
const self = this;
let name;
name = $.type(self).__name__;
if (($.truth($.isinstance(other, Quantity)) && $.isnt($.type(other), $.type(self)))) {
throw $.TypeError(["cannot ", $.format(verb, "", ""), " ", $.format(name, "", ""), " and ", $.format($.type(other).__name__, "", ""), ": they are different units; convert one of them with int() or float() if this is meant"].join(''));
}
if (($.is(self._plain, $.int) && !$.truth($.isinstance(other, $.int)) && $.ne(verb, "compare"))) {
throw $.TypeError(["cannot ", $.format(verb, "", ""), " ", $.format(name, "", ""), " and ", $.format(other, "r", ""), ": ", $.format(name, "", ""), " are whole numbers; round it with int(), or convert the other with float()"].join(''));
}
return ($.truth($.isinstance(other, Quantity)) ? self._plain(other) : other);
})],
["method", "__add__", $.fn(["other"], function (other) {
const self = this;
return self._with_unit($.add(self._plain(self), self._other(other, "add")));
})],
["alias", "__radd__", "__add__"],
["method", "__sub__", $.fn(["other"], function (other) {
const self = this;
return self._with_unit($.sub(self._plain(self), self._other(other, "subtract")));
})],
["method", "__rsub__", $.fn(["other"], function (other) {
const self = this;
return self._with_unit($.sub(self._other(other, "subtract"), self._plain(self)));
})],
["method", "__neg__", $.fn([], function () {
const self = this;
return self._with_unit($.negative(self._plain(self)));
})],
["method", "__mul__", $.fn(["other"], function (other) {
const self = this;
if ($.truth($.isinstance(other, Quantity))) {
throw $.TypeError([$.format($.type(self).__name__, "", ""), " times ", $.format($.type(other).__name__, "", ""), " has no meaning here"].join(''));
}
if (($.is(self._plain, $.int) && !$.truth($.isinstance(other, $.int)))) {
return $.NotImplemented;
}
return self._with_unit($.mul(self._plain(self), other));
})],
["alias", "__rmul__", "__mul__"],
["method", "__eq__", $.fn(["other"], function (other) {
const self = this;
if ($.truth($.isinstance(other, Quantity))) {
return $.and($.is($.type(other), $.type(self)), () => $.bool($.eq(self._plain(self), self._plain(other))));
}
return $.bool($.eq(self._plain(self), other));
})],
["method", "__ne__", $.fn(["other"], function (other) {
const self = this;
return !$.eq(self, other);
})],
["method", "__hash__", $.fn([], function () {
const self = this;
return $.hash(self._plain(self));
})],
["method", "__lt__", $.fn(["other"], function (other) {
const self = this;
return $.bool($.lt(self._plain(self), self._other(other, "compare")));
})],
["method", "__le__", $.fn(["other"], function (other) {
const self = this;
return $.bool($.le(self._plain(self), self._other(other, "compare")));
})],
["method", "__gt__", $.fn(["other"], function (other) {
const self = this;
return $.bool($.gt(self._plain(self), self._other(other, "compare")));
})],
["method", "__ge__", $.fn(["other"], function (other) {
const self = this;
return $.bool($.ge(self._plain(self), self._other(other, "compare")));
})]
]);
Count = $.class("Count", [Quantity, $.int], false, [], [
["value", ["_plain"], $.int],
["method", "__truediv__", $.fn(["other"], function (other) {
const self = this;
let result;
result = $.method(_QUOTIENTS, "get")([$.type(self), $.type(other)]);
if ($.isnt(result, null)) {
return result($.div($.int(self), $.float(other)));
}
return $.div($.int(self), ($.truth($.isinstance(other, Quantity)) ? self._other(other, "divide") : other));
})],
["method", "__floordiv__", $.fn(["other"], function (other) {
const self = this;
let quotient;
quotient = $.floordiv($.int(self), self._other(other, "divide"));
return ($.truth($.isinstance(other, Count)) ? quotient : $.type(self)(quotient));
})],
["method", "__mod__", $.fn(["other"], function (other) {
const self = this;
return $.type(self)($.mod($.int(self), self._other(other, "divide")));
})],
["method", "__repr__", $.fn([], function () {
const self = this;
return [$.format($.type(self).__name__, "", ""), "(", $.format($.int(self), "", ["_"].join('')), ")"].join('');
})],
["method", "__str__", $.fn([], function () {
const self = this;
return [$.format($.int(self), "", [","].join(''))].join('');
})]
]);
Measure = $.class("Measure", [Quantity, $.float], false, [], [
["method", "__truediv__", $.fn(["other"], function (other) {
const self = this;
let quotient;
quotient = $.div($.float(self), self._other(other, "divide"));
return ($.truth($.isinstance(other, Measure)) ? quotient : $.type(self)(quotient));
})],
["method", "__repr__", $.fn([], function () {
const self = this;
return [$.format($.type(self).__name__, "", ""), "(", $.format($.float(self), "r", ""), ")"].join('');
})]
]);
Parameters = $.class("Parameters", [Count], false, [], [
["value", ["unit"], "parameters"]
]);
Tokens = $.class("Tokens", [Count], false, [], [
["value", ["unit"], "tokens"]
]);
FLOPs = $.class("FLOPs", [Count], false, [], [
["value", ["unit"], "FLOP"]
]);
Bytes = $.class("Bytes", [Count], false, [], [
["value", ["unit"], "B"]
]);
Seconds = $.class("Seconds", [Measure], false, [], [
["value", ["unit"], "s"]
]);
FLOPRate = $.class("FLOPRate", [Measure], false, [], [
["value", ["unit"], "FLOP/s"]
]);
ByteRate = $.class("ByteRate", [Measure], false, [], [
["value", ["unit"], "B/s"]
]);
TokenRate = $.class("TokenRate", [Measure], false, [], [
["value", ["unit"], "tokens/s"]
]);
_QUOTIENTS = $.dict([[[FLOPs, FLOPRate], Seconds], [[FLOPs, Seconds], FLOPRate], [[Bytes, ByteRate], Seconds], [[Bytes, Seconds], ByteRate], [[Tokens, TokenRate], Seconds], [[Tokens, Seconds], TokenRate]]);
_DECIMAL = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
_BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
const human = $.fn(["quantity", "binary"], function (quantity, binary = false) {
let base, digits, gap, power, prefixes, unit, value;
unit = $.getattr(quantity, "unit", "");
if ($.truth($.isinstance(quantity, Seconds))) {
return _clock($.float(quantity));
}
[base, prefixes] = $.unpack(($.truth(binary) ? [1024.0, _BINARY] : [1000.0, _DECIMAL]), 2n, -1n);
if (($.truth(binary) && !$.truth($.isinstance(quantity, Bytes)))) {
throw $.ValueError(["binary prefixes are for bytes only, and this is ", $.format($.or(unit, () => "a plain number"), "", ""), "; use binary=False"].join(''));
}
[value, power] = $.unpack([$.float(quantity), 0n], 2n, -1n);
while (($.ge($.abs(value), $.sub(base, 0.005)) && $.lt(power, $.sub($.len(prefixes), 1n)))) {
value = $.div(value, base);
power = $.iadd(power, 1n);
}
digits = (($.eq(power, 0n) && $.eq(value, $.int(value))) ? [$.format(value, "", [".0f"].join(''))].join('') : [$.format(value, "", [".2f"].join(''))].join(''));
gap = (($.gt($.len(unit), 6n) && $.truth(power)) ? " " : "");
return $.method([$.format(digits, "", ""), " ", $.format($.item(prefixes, power), "", ""), $.format(gap, "", ""), $.format(unit, "", "")].join(''), "rstrip")();
});
const _clock = $.fn(["seconds"], function (seconds) {
let name, size;
for (const $$1 of $.iter([[$.mul(365.25, 86400n), "years"], [86400n, "days"], [3600n, "h"], [60n, "min"]])) {
[size, name] = $.unpack($$1, 2n, -1n);
if ($.ge(seconds, $.mul(2n, size))) {
return [$.format($.div(seconds, size), "", [",.2f"].join('')), " ", $.format(name, "", "")].join('');
}
}
if ($.ge(seconds, 0.1)) {
return [$.format(seconds, "", [".2f"].join('')), " s"].join('');
}
return (($.ge(seconds, 1e-05) || !$.truth(seconds)) ? [$.format($.mul(seconds, 1000.0), "", [".3f"].join('')), " ms"].join('') : [$.format($.mul(seconds, 1000000.0), "", [".3f"].join('')), " µs"].join(''));
});
return {ByteRate: () => ByteRate, Bytes: () => Bytes, Count: () => Count, FLOPRate: () => FLOPRate, FLOPs: () => FLOPs, Measure: () => Measure, Parameters: () => Parameters, Quantity: () => Quantity, Seconds: () => Seconds, TokenRate: () => TokenRate, Tokens: () => Tokens, _BINARY: () => _BINARY, _DECIMAL: () => _DECIMAL, _QUOTIENTS: () => _QUOTIENTS, _clock: () => _clock, human: () => human};
});
$.module("accounting.shape", () => {
let ADAPTED, ATTENTION_TARGETS, Attention, DeltaAttention, FFNS, FeedForward, GATED, KW_ONLY, Kind, LatentAttention, Layer, MOST_LISTED, NORMS, NotCounted, POSITIONS, QK_NORMS, ROUTERS, TransformerShape, cached_property, dataclass, replace;

KW_ONLY = $.libraries.dataclasses.KW_ONLY;
dataclass = $.libraries.dataclasses.dataclass;
replace = $.libraries.dataclasses.replace;
cached_property = $.libraries.functools.cached_property;
FFNS = ["swiglu", "clamped_swiglu", "geglu", "gelu", "silu", "relu", "relu2"];
GATED = ["swiglu", "clamped_swiglu", "geglu"];
NORMS = ["rmsnorm", "layernorm", "none"];
POSITIONS = ["rope", "learned", "alibi", "none"];
QK_NORMS = ["none", "head", "width", "l2"];
ATTENTION_TARGETS = ["query", "key", "value", "output"];
ADAPTED = [...$.iter(ATTENTION_TARGETS), "gate", "up", "down", "qkv", "gate_up"];
ROUTERS = ["softmax", "sigmoid", "softmax_of_chosen", "sigmoid_of_input"];
MOST_LISTED = $.shift(1n, 14n);
NotCounted = $.class("NotCounted", [$.ValueError], false, [], [

]);
Attention = $.class("Attention", [], true, [["window", () => null, false], ["chunked", () => false, false], ["rotated", () => null, false], ["qk_norm", () => null, false], ["sinks", () => false, false], ["gated", () => false, false]], [
["method", "__post_init__", $.fn([], function () {
const self = this;
if ($.isnt(self.window, null)) {
positive("sliding_window", self.window);
} else {
if ($.truth(self.chunked)) {
throw $.ValueError("chunked attention needs a window, the width of a chunk: give one");
}
}
_booleans(self, ["chunked", "sinks", "gated"]);
if ($.isnt($.bound(self, "rotated"), null)) {
_booleans(self, ["rotated"]);
}
if ($.isnt(self.qk_norm, null)) {
choose("qk_norm", self.qk_norm, QK_NORMS);
}
})]
]);
LatentAttention = $.class("LatentAttention", [], true, [["q_rank", undefined, false], ["kv_rank", undefined, false], ["nope_dim", undefined, false], ["rope_dim", undefined, false], ["value_dim", undefined, false]], [
["value", ["window"], null],
["value", ["chunked", "sinks"], false],
["value", ["rotated"], true],
["value", ["qk_norm"], "none"],
["method", "__post_init__", $.fn([], function () {
const self = this;
let name;
for (const $$1 of $.iter(["kv_rank", "nope_dim", "rope_dim", "value_dim"])) {
name = $$1;
positive(name, $.getattr(self, name));
}
if ($.isnt(self.q_rank, null)) {
positive("q_rank", self.q_rank);
}
})]
]);
DeltaAttention = $.class("DeltaAttention", [], true, [["key_heads", undefined, false], ["value_heads", undefined, false], ["key_dim", undefined, false], ["value_dim", undefined, false], ["kernel", undefined, false]], [
["value", ["window"], null],
["value", ["chunked", "sinks", "rotated"], false],
["value", ["qk_norm"], "none"],
["method", "__post_init__", $.fn([], function () {
const self = this;
let name;
for (const $$2 of $.iter(["key_heads", "value_heads", "key_dim", "value_dim", "kernel"])) {
name = $$2;
positive(name, $.getattr(self, name));
}
if ($.truth($.mod(self.value_heads, self.key_heads))) {
throw $.ValueError(["expected value_heads a multiple of key_heads ", $.format(self.key_heads, "", ""), ", got ", $.format(self.value_heads, "", "")].join(''));
}
})]
]);
FeedForward = $.class("FeedForward", [], true, [["d_ff", () => null, false], ["experts", () => null, true], ["experts_per_token", () => null, true], ["experts_held", () => null, true], ["shared_d_ff", () => null, true], ["shared_gate", () => false, true], ["router", () => "softmax", true], ["router_bias", () => false, true]], [
["method", "__post_init__", $.fn([], function () {
const self = this;
let name;
for (const $$3 of $.iter(["d_ff", "experts", "experts_per_token", "experts_held", "shared_d_ff"])) {
name = $$3;
if ($.isnt($.getattr(self, name), null)) {
positive(name, $.getattr(self, name));
}
}
_booleans(self, ["shared_gate", "router_bias"]);
choose("router", self.router, ROUTERS);
if ($.ne($.is(self.experts, null), $.is(self.experts_per_token, null))) {
throw $.ValueError(["experts ", $.format(self.experts, "", ""), " and experts_per_token ", $.format(self.experts_per_token, "", ""), " go together: give both or neither"].join(''));
}
if (($.is(self.experts, null) && ($.truth(self.experts_held) || $.truth(self.shared_d_ff) || $.truth(self.router_bias)))) {
throw $.ValueError("experts_held, shared_d_ff and router_bias need experts: give experts");
}
if (($.truth(self.shared_gate) && $.is(self.shared_d_ff, null))) {
throw $.ValueError("shared_gate needs a shared feed-forward layer: give shared_d_ff");
}
for (const $$4 of $.iter(["experts_per_token", "experts_held"])) {
name = $$4;
if (($.isnt(self.experts, null) && $.gt($.or($.getattr(self, name), () => 1n), self.experts))) {
throw $.ValueError([$.format(name, "", ""), " ", $.format($.getattr(self, name), "", ""), " is more than experts ", $.format(self.experts, "", "")].join(''));
}
}
})],
["property", "active", $.fn([], function () {
const self = this;
return $.or(self.experts_per_token, () => 1n);
})],
["property", "held", $.fn([], function () {
const self = this;
return $.or(self.experts_held, () => $.or(self.experts, () => 1n));
})]
]);
Layer = $.class("Layer", [], true, [["attention", () => null, false], ["ffn", () => null, false]], [

]);
Kind = $.class("Kind", [], true, [["attention", undefined, false], ["ffn", undefined, false]], [
["property", "d_ff", $.fn([], function () {
const self = this;
return $.or($.bound(self, "ffn").d_ff, () => 0n);
})]
]);
TransformerShape = $.class("TransformerShape", [], true, [["vocab_size", undefined, false], ["context_length", undefined, false], ["num_layers", undefined, false], ["d_model", undefined, false], ["num_heads", undefined, false], ["d_ff", undefined, false], ["num_kv_heads", () => null, true], ["head_dim", () => null, true], ["ffn", () => "swiglu", true], ["norm", () => "rmsnorm", true], ["position", () => "rope", true], ["tied_embeddings", () => false, true], ["bias", () => false, true], ["sliding_window", () => null, true], ["qkv_bias", () => null, true], ["output_bias", () => null, true], ["ffn_bias", () => null, true], ["norm_bias", () => null, true], ["qk_norm", () => false, true], ["post_norm", () => false, true], ["block_norms", () => null, true], ["embedding_norm", () => false, true], ["experts", () => null, true], ["experts_per_token", () => null, true], ["vocab_multiple", () => 1n, true], ["extra_positions", () => 0n, true], ["value_embeddings", () => 0n, true], ["lora_rank", () => null, true], ["lora_targets", () => null, true], ["leading", () => [], true], ["layers", () => [Layer()], true]], [
["method", "__post_init__", $.fn([], function () {
const self = this;
let name;
for (const $$5 of $.iter(["vocab_size", "context_length", "num_layers", "d_model", "num_heads", "d_ff", "vocab_multiple"])) {
name = $$5;
positive(name, $.getattr(self, name));
}
for (const $$6 of $.iter(["num_kv_heads", "head_dim", "sliding_window", "experts", "experts_per_token", "lora_rank"])) {
name = $$6;
if ($.isnt($.getattr(self, name), null)) {
positive(name, $.getattr(self, name));
}
}
_booleans(self, ["tied_embeddings", "bias", "post_norm", "embedding_norm"]);
for (const $$7 of $.iter(["qkv_bias", "output_bias", "ffn_bias", "norm_bias"])) {
name = $$7;
if (($.isnt($.getattr(self, name), null) && !$.truth($.isinstance($.getattr(self, name), $.bool)))) {
throw $.ValueError([$.format(name, "", ""), " must be True, False or None for that of bias, and ", $.format($.getattr(self, name), "r", ""), " is neither"].join(''));
}
}
choose("ffn", $.bound(self, "ffn"), FFNS);
choose("norm", self.norm, NORMS);
choose("position", self.position, POSITIONS);
if (!$.truth($.isinstance(self.qk_norm, $.bool))) {
choose("qk_norm", self.qk_norm, QK_NORMS);
}
for (const $$8 of $.iter(["block_norms", "extra_positions"])) {
name = $$8;
if ($.isnt($.getattr(self, name), null)) {
whole(name, $.getattr(self, name));
}
}
if (($.truth(self.extra_positions) && $.ne(self.position, "learned"))) {
throw $.ValueError(["extra_positions ", $.format(self.extra_positions, "", ""), " are rows of learned positions: leave them out"].join(''));
}
self._check_layers();
self._check_heads();
if (!($.le(0n, whole("value_embeddings", self.value_embeddings)) && $.le(whole("value_embeddings", self.value_embeddings), self.num_layers))) {
throw $.ValueError(["value_embeddings ", $.format(self.value_embeddings, "", ""), " is more than num_layers ", $.format(self.num_layers, "", "")].join(''));
}
if (($.truth(self.value_embeddings) && !$.truth($.all((() => { const $all = [];
for (const $$9 of $.iter(self.counts)) {
let kind;
kind = $$9;
$all.push($.isinstance($.bound(kind, "attention"), Attention));} return $all; })())))) {
throw $.ValueError("value_embeddings need the values of softmax attention: leave them out");
}
self._check_adapters();
})],
["method", "_check_layers", $.fn([], function () {
const self = this;
let listed, name, value;
for (const $$10 of $.iter(["leading", "layers"])) {
name = $$10;
value = $.getattr(self, name);
if ((!$.truth($.isinstance(value, $.tuple)) || !$.truth($.all((() => { const $all = [];
for (const $$11 of $.iter(value)) {
let layer;
layer = $$11;
$all.push($.isinstance(layer, Layer));} return $all; })())))) {
throw $.ValueError(["expected ", $.format(name, "", ""), " as a tuple of Layer, got ", $.format(value, "r", [".80"].join(''))].join(''));
}
}
if (!$.truth(self.layers)) {
throw $.ValueError("layers is empty: give at least one Layer");
}
if ($.gt($.len(self.leading), self.num_layers)) {
throw $.ValueError(["leading has ", $.format($.len(self.leading), "", ""), " layers, and num_layers is ", $.format(self.num_layers, "", ""), ": give fewer"].join(''));
}
listed = $.as_list((() => { const $all = [];
for (const $$12 of $.iter([...$.iter(self.leading), ...$.iter(self.layers)])) {
let layer;
layer = $$12;
if (!(($.is($.bound(layer, "attention"), null) || $.is($.bound(layer, "ffn"), null)))) continue;
$all.push(layer);} return $all; })());
if ((!$.truth($.any((() => { const $all = [];
for (const $$13 of $.iter(listed)) {
let layer;
layer = $$13;
$all.push($.is($.bound(layer, "ffn"), null));} return $all; })())) && ($.truth(self.experts) || $.truth(self.experts_per_token)))) {
throw $.ValueError("experts would change nothing, as every layer has its own ffn: leave it out");
}
if ((!$.truth($.any((() => { const $all = [];
for (const $$14 of $.iter(listed)) {
let layer;
layer = $$14;
$all.push($.is($.bound(layer, "attention"), null));} return $all; })())) && $.truth(self.sliding_window))) {
throw $.ValueError("sliding_window would change nothing, as every layer has its own attention: leave it out");
}
})],
["method", "_check_heads", $.fn([], function () {
const self = this;
let kinds, name;
kinds = $.as_list((() => { const $all = [];
for (const $$15 of $.iter(self.counts)) {
let kind;
kind = $$15;
if (!($.truth($.isinstance($.bound(kind, "attention"), Attention)))) continue;
$all.push($.bound(kind, "attention"));} return $all; })());
if (!$.truth(kinds)) {
for (const $$16 of $.iter(["num_kv_heads", "head_dim"])) {
name = $$16;
if ($.isnt($.getattr(self, name), null)) {
throw $.ValueError([$.format(name, "", ""), " ", $.format($.getattr(self, name), "", ""), " would change nothing, as no layer has softmax attention with heads of its own: leave it out"].join(''));
}
}
return null;
}
if (($.is($.bound(self, "head_dim"), null) && $.truth($.mod(self.d_model, self.num_heads)))) {
throw $.ValueError(["d_model ", $.format(self.d_model, "", ""), " is not a multiple of num_heads ", $.format(self.num_heads, "", ""), ": change one of them, or give head_dim"].join(''));
}
if ($.truth($.mod(self.num_heads, $.bound(self, "kv_heads")))) {
throw $.ValueError(["num_kv_heads ", $.format($.bound(self, "kv_heads"), "", ""), " does not divide num_heads ", $.format(self.num_heads, "", ""), ": every key head serves the same number of query heads"].join(''));
}
if (($.truth($.any((() => { const $all = [];
for (const $$17 of $.iter(kinds)) {
let one;
one = $$17;
$all.push($.bound(one, "rotated"));} return $all; })())) && $.ne(self.position, "rope"))) {
throw $.ValueError(["rotated layers need position 'rope', got ", $.format(self.position, "r", "")].join(''));
}
if (($.truth($.any((() => { const $all = [];
for (const $$18 of $.iter(kinds)) {
let one;
one = $$18;
$all.push($.bound(one, "rotated"));} return $all; })())) && $.truth($.mod(self.head_width, 2n)))) {
throw $.ValueError(["head_dim ", $.format(self.head_width, "", ""), " is odd, and rope turns pairs: make it even"].join(''));
}
if ($.truth($.any((() => { const $all = [];
for (const $$19 of $.iter(kinds)) {
let one;
one = $$19;
$all.push($.and($.eq(one.qk_norm, "l2"), () => !$.truth($.bound(one, "rotated"))));} return $all; })()))) {
throw $.ValueError("qk_norm 'l2' is of rotated queries and keys: rotate them, or use another");
}
})],
["method", "_check_adapters", $.fn([], function () {
const self = this;
let name, parts, targets;
if ($.is(self.lora_rank, null)) {
if ($.isnt(self.lora_targets, null)) {
throw $.ValueError(["lora_targets ", $.format(self.lora_targets, "", ""), " have no meaning without a lora_rank: give one"].join(''));
}
return null;
}
if (($.gt($.len(self.matrix_kinds), 1n) || !$.truth(self.plain) || $.truth(self.value_embeddings))) {
throw $.ValueError(["lora_rank ", $.format(self.lora_rank, "", ""), ": adapters are not counted for latent attention, linear attention, shared experts, dense layers beside experts, attention sinks or value embeddings"].join(''));
}
targets = self.adapted;
if ((!$.truth($.isinstance(targets, $.tuple)) || !$.truth(targets))) {
throw $.ValueError(["expected lora_targets as a tuple of at least one matrix, got ", $.format(targets, "r", "")].join(''));
}
for (const $$20 of $.iter(targets)) {
name = $$20;
choose("lora_targets", name, ADAPTED);
}
if ($.lt($.len($.set(targets)), $.len(targets))) {
throw $.ValueError(["lora_targets ", $.format(targets, "", ""), " must name at least one matrix, and each once"].join(''));
}
for (const $$21 of $.iter([["qkv", ["query", "key", "value"]], ["gate_up", ["gate", "up"]]])) {
[name, parts] = $.unpack($$21, 2n, -1n);
if (($.has(name, targets) && $.truth($.bitand($.set(parts), $.set(targets))))) {
throw $.ValueError(["lora_targets ", $.format(targets, "", ""), " name ", $.format(name, "", ""), " and a part of it: name one of them"].join(''));
}
}
if ((!$.truth(self.gated) && $.truth($.bitand($.set(["gate", "gate_up"]), $.set(targets))))) {
throw $.ValueError(["lora_targets ", $.format(targets, "", ""), " name a gate, and ffn ", $.format($.bound(self, "ffn"), "r", ""), " has none: leave it out"].join(''));
}
})],
["method", "kind", $.fn(["layer"], function (layer) {
const self = this;
let attention, ffn, norm;
attention = ($.is($.bound(layer, "attention"), null) ? Attention(self.sliding_window) : $.bound(layer, "attention"));
if ($.truth($.isinstance(attention, Attention))) {
norm = ($.is(self.qk_norm, true) ? "head" : $.or(self.qk_norm, () => "none"));
attention = $.call(replace, [attention], {rotated: ($.is($.bound(attention, "rotated"), null) ? $.eq(self.position, "rope") : $.bound(attention, "rotated")), qk_norm: ($.is(attention.qk_norm, null) ? norm : attention.qk_norm)});
}
ffn = $.or($.bound(layer, "ffn"), () => $.call(FeedForward, [], {experts: self.experts, experts_per_token: self.experts_per_token}));
return Kind(attention, $.call(replace, [ffn], {d_ff: $.or(ffn.d_ff, () => self.d_ff)}));
})],
["cached_property", "_resolved", $.fn([], function () {
const self = this;
let kinds;
kinds = $.dict((() => { const $all = [];
for (const $$22 of $.iter($.set([...$.iter(self.leading), ...$.iter(self.layers)]))) {
let layer;
layer = $$22;
$all.push([layer, self.kind(layer)]);} return $all; })());
return [$.as_list((() => { const $all = [];
for (const $$23 of $.iter(self.leading)) {
let layer;
layer = $$23;
$all.push($.item(kinds, layer));} return $all; })()), $.as_list((() => { const $all = [];
for (const $$24 of $.iter(self.layers)) {
let layer;
layer = $$24;
$all.push($.item(kinds, layer));} return $all; })())];
})],
["method", "kind_at", $.fn(["depth"], function (depth) {
const self = this;
let leading, pattern;
[leading, pattern] = $.unpack(self._resolved, 2n, -1n);
return ($.lt(depth, $.len(leading)) ? $.item(leading, depth) : $.item(pattern, $.mod($.sub(depth, $.len(leading)), $.len(pattern))));
})],
["cached_property", "counts", $.fn([], function () {
const self = this;
return self.counts_below(self.num_layers);
})],
["method", "counts_below", $.fn(["depth"], function (depth) {
const self = this;
let counts, kind, kinds, leading, pattern, periods, rest, times;
[leading, pattern] = $.unpack(self._resolved, 2n, -1n);
[periods, rest] = $.unpack($.divmod($.max(0n, $.sub(depth, $.len(leading))), $.len(pattern)), 2n, -1n);
counts = $.dict([]);
for (const $$25 of $.iter([[$.slice(leading, null, depth), 1n], [pattern, periods], [$.slice(pattern, null, rest), 1n]])) {
[kinds, times] = $.unpack($$25, 2n, -1n);
for (const $$26 of $.iter(kinds)) {
kind = $$26;
$.set_item(counts, kind, $.add($.method(counts, "get")(kind, 0n), times));
}
}
return $.dict((() => { const $all = [];
for (const $$27 of $.iter($.method(counts, "items")())) {
let count, kind;
[kind, count] = $.unpack($$27, 2n, -1n);
if (!($.truth(count))) continue;
$all.push([kind, count]);} return $all; })());
})],
["method", "between", $.fn(["first", "after"], function (first, after) {
const self = this;
let at, layers, leading, turn;
at = $.len(self.leading);
[leading, turn] = $.unpack([$.slice(self.leading, first, after), $.mod($.max(0n, $.sub(first, at)), $.len(self.layers))], 2n, -1n);
layers = $.add($.slice(self.layers, turn, null), $.slice(self.layers, null, turn));
if ($.le(after, at)) {
[leading, layers] = $.unpack([$.slice(leading, null, $.negative(1n)), $.slice(leading, $.negative(1n), null)], 2n, -1n);
}
return $.call(replace, [self], {num_layers: $.sub(after, first), leading: leading, layers: layers});
})],
["cached_property", "matrix_kinds", $.fn([], function () {
const self = this;
return _sums((() => { const $all = [];
for (const $$28 of $.iter($.method(self.counts, "items")())) {
let count, kind;
[kind, count] = $.unpack($$28, 2n, -1n);
$all.push([without_window(kind), count]);} return $all; })());
})],
["cached_property", "attentions", $.fn([], function () {
const self = this;
return _sums((() => { const $all = [];
for (const $$29 of $.iter($.method(self.matrix_kinds, "items")())) {
let count, kind;
[kind, count] = $.unpack($$29, 2n, -1n);
$all.push([$.bound(kind, "attention"), count]);} return $all; })());
})],
["cached_property", "ffns", $.fn([], function () {
const self = this;
return _sums((() => { const $all = [];
for (const $$30 of $.iter($.method(self.matrix_kinds, "items")())) {
let count, kind;
[kind, count] = $.unpack($$30, 2n, -1n);
$all.push([$.bound(kind, "ffn"), count]);} return $all; })());
})],
["cached_property", "plain", $.fn([], function () {
const self = this;
return $.and($.eq($.len(self.matrix_kinds), 1n), () => $.and($.has($.bound(self, "ffn"), ["swiglu", "geglu", "gelu", "silu", "relu2"]), () => $.and($.is(self.block_norms, null), () => $.and(!($.truth(self.embedding_norm) || $.truth(self.extra_positions)), () => $.and($.ne(self.position, "alibi"), () => $.and($.all((() => { const $all = [];
for (const $$33 of $.iter([self.output_bias, self.ffn_bias, self.norm_bias])) {
let given;
given = $$33;
$all.push($.has(given, [null, self.bias]));} return $all; })()), () => $.and($.all((() => { const $all = [];
for (const $$32 of $.iter(self.attentions)) {
let one;
one = $$32;
$all.push($.and($.isinstance(one, Attention), () => $.and(!($.truth(one.sinks) || $.truth(one.gated) || $.truth(one.chunked)), () => $.and($.has(one.qk_norm, ["none", "head"]), () => $.eq($.bound(one, "rotated"), $.eq(self.position, "rope"))))));} return $all; })()), () => $.all((() => { const $all = [];
for (const $$31 of $.iter(self.ffns)) {
let one;
one = $$31;
$all.push($.and($.is(one.shared_d_ff, null), () => $.and($.eq(one.router, "softmax"), () => !$.truth(one.router_bias))));} return $all; })()))))))));
})],
["property", "adapted", $.fn([], function () {
const self = this;
if ($.is(self.lora_rank, null)) {
return [];
}
if ($.isnt(self.lora_targets, null)) {
return self.lora_targets;
}
return [...$.iter(ATTENTION_TARGETS), ...$.iter(($.truth(self.gated) ? ["gate", "up", "down"] : ["up", "down"]))];
})],
["property", "kv_heads", $.fn([], function () {
const self = this;
return ($.is(self.num_kv_heads, null) ? self.num_heads : self.num_kv_heads);
})],
["property", "head_width", $.fn([], function () {
const self = this;
let kind;
for (const $$34 of $.iter(self.counts)) {
kind = $$34;
if ($.truth($.isinstance($.bound(kind, "attention"), LatentAttention))) {
return $.add($.bound(kind, "attention").nope_dim, $.bound(kind, "attention").rope_dim);
}
}
return ($.is($.bound(self, "head_dim"), null) ? $.floordiv(self.d_model, self.num_heads) : $.bound(self, "head_dim"));
})],
["property", "latent", $.fn([], function () {
const self = this;
return $.next((() => { const $all = [];
for (const $$35 of $.iter(self.attentions)) {
let one;
one = $$35;
if (!($.truth($.isinstance(one, LatentAttention)))) continue;
$all.push(one);} return $all; })(), null);
})],
["property", "vocab_rows", $.fn([], function () {
const self = this;
return $.mul($.negative($.floordiv($.negative(self.vocab_size), self.vocab_multiple)), self.vocab_multiple);
})],
["property", "gated", $.fn([], function () {
const self = this;
return $.has($.bound(self, "ffn"), GATED);
})],
["property", "matrices_of_ffn", $.fn([], function () {
const self = this;
return ($.truth(self.gated) ? 3n : 2n);
})],
["property", "most_experts", $.fn([], function () {
const self = this;
return $.max((() => { const $all = [];
for (const $$36 of $.iter(self.ffns)) {
let one;
one = $$36;
$all.push($.or(one.experts, () => 1n));} return $all; })());
})],
["property", "windowed_layers", $.fn([], function () {
const self = this;
return $.sum((() => { const $all = [];
for (const $$37 of $.iter($.method(self.counts, "items")())) {
let count, kind;
[kind, count] = $.unpack($$37, 2n, -1n);
if (!($.isnt($.bound(kind, "attention").window, null))) continue;
$all.push(count);} return $all; })());
})],
["property", "biased_qkv", $.fn([], function () {
const self = this;
return ($.is(self.qkv_bias, null) ? self.bias : self.qkv_bias);
})],
["property", "biased_output", $.fn([], function () {
const self = this;
return ($.is(self.output_bias, null) ? self.bias : self.output_bias);
})],
["property", "biased_ffn", $.fn([], function () {
const self = this;
return ($.is(self.ffn_bias, null) ? self.bias : self.ffn_bias);
})],
["property", "biased_norm", $.fn([], function () {
const self = this;
return $.and($.eq(self.norm, "layernorm"), () => ($.is(self.norm_bias, null) ? self.bias : self.norm_bias));
})],
["property", "norms_of_block", $.fn([], function () {
const self = this;
return ($.is(self.block_norms, null) ? ($.truth(self.post_norm) ? 4n : 2n) : self.block_norms);
})],
["property", "norms", $.fn([], function () {
const self = this;
return ($.eq(self.norm, "none") ? 0n : $.add($.add($.mul(self.num_layers, self.norms_of_block), 1n), self.embedding_norm));
})],
["method", "sequence", $.fn(["seq_len"], function (seq_len) {
const self = this;
let length;
length = ($.is(seq_len, null) ? self.context_length : positive("seq_len", seq_len));
if (($.eq(self.position, "learned") && $.gt(length, self.context_length))) {
throw $.ValueError(["seq_len ", $.format(length, "", ""), " is beyond the ", $.format(self.context_length, "", ""), " learned positions: shorten it, or make a shape with a larger context_length"].join(''));
}
return length;
})]
]);
const pattern = $.fn(["layers"], function (layers) {
let period;
for (const $$38 of $.iter($.range(1n, $.len(layers)))) {
period = $$38;
if ($.truth($.all((() => { const $all = [];
for (const $$39 of $.iter($.range(period, $.len(layers)))) {
let at;
at = $$39;
$all.push($.eq($.item(layers, at), $.item(layers, $.sub(at, period))));} return $all; })()))) {
return $.tuple($.slice(layers, null, period));
}
}
return $.tuple(layers);
});
const without_window = $.fn(["kind"], function (kind) {
let attention;
attention = $.bound(kind, "attention");
if (($.truth($.isinstance(attention, Attention)) && $.isnt(attention.window, null))) {
return Kind($.call(replace, [attention], {window: null, chunked: false}), $.bound(kind, "ffn"));
}
return kind;
});
const _sums = $.fn(["pairs"], function (pairs) {
let count, key, sums;
sums = $.dict([]);
for (const $$40 of $.iter(pairs)) {
[key, count] = $.unpack($$40, 2n, -1n);
$.set_item(sums, key, $.add($.method(sums, "get")(key, 0n), count));
}
return sums;
});
const no_value_embeddings = $.fn(["shape", "quantity"], function (shape, quantity) {
if ($.truth(shape.value_embeddings)) {
throw NotCounted([$.format(quantity, "", ""), " is not counted of shapes with value embeddings"].join(''));
}
});
const _booleans = $.fn(["record", "names"], function (record, names) {
let name;
for (const $$41 of $.iter(names)) {
name = $$41;
if (!$.truth($.isinstance($.getattr(record, name), $.bool))) {
throw $.ValueError([$.format(name, "", ""), " must be True or False, and ", $.format($.getattr(record, name), "r", ""), " is neither"].join(''));
}
}
});
const whole = $.fn(["name", "value"], function (name, value) {
if (($.truth($.isinstance(value, $.bool)) || !$.truth($.isinstance(value, $.int)) || $.lt(value, 0n))) {
throw $.ValueError([$.format(name, "", ""), " must be a whole number of at least 0, and ", $.format(value, "r", ""), " is not"].join(''));
}
return value;
});
const positive = $.fn(["name", "value"], function (name, value) {
if (($.truth($.isinstance(value, $.bool)) || !$.truth($.isinstance(value, $.int)))) {
throw $.ValueError([$.format(name, "", ""), " must be a whole number of at least 1, and ", $.format(value, "r", ""), " is not one"].join(''));
}
if ($.lt(value, 1n)) {
throw $.ValueError([$.format(name, "", ""), " must be at least 1, and ", $.format(value, "", ""), " is not"].join(''));
}
return value;
});
const named = $.fn(["kind", "name", "among"], function (kind, name, among) {
let difflib, lower, meant, near, one_of;
if ($.has(name, among)) {
return $.item(among, name);
}
lower = $.method($.str(name), "lower")();
if ($.has(lower, among)) {
return $.item(among, lower);
}
difflib = $.libraries.difflib;
near = $.or($.as_list((() => { const $all = [];
for (const $$42 of $.iter(among)) {
let one;
one = $$42;
if (!($.truth($.method(one, "startswith")([$.format(lower, "", ""), "-"].join(''))))) continue;
$all.push(one);} return $all; })()), () => $.call_method(difflib, "get_close_matches", [lower, among], {n: 1n}));
meant = "";
if ($.truth(near)) {
one_of = ($.gt($.len(near), 1n) ? "one of " : "");
meant = ["did you mean ", $.format(one_of, "", ""), $.format($.method(", ", "join")($.map($.repr, near)), "", ""), "? Else "].join('');
}
throw $.KeyError(["no ", $.format(kind, "", ""), " is called ", $.format(name, "r", ""), ": ", $.format(meant, "", ""), "use one of ", $.format($.method(", ", "join")(among), "", "")].join(''));
});
const choose = $.fn(["name", "value", "among"], function (name, value, among) {
if ($.hasnt(value, among)) {
throw $.ValueError([$.format(name, "", ""), " ", $.format(value, "r", ""), " is not known: use one of ", $.format($.method(", ", "join")(among), "", "")].join(''));
}
return $.str(value);
});
return {ADAPTED: () => ADAPTED, ATTENTION_TARGETS: () => ATTENTION_TARGETS, Attention: () => Attention, DeltaAttention: () => DeltaAttention, FFNS: () => FFNS, FeedForward: () => FeedForward, GATED: () => GATED, KW_ONLY: () => KW_ONLY, Kind: () => Kind, LatentAttention: () => LatentAttention, Layer: () => Layer, MOST_LISTED: () => MOST_LISTED, NORMS: () => NORMS, NotCounted: () => NotCounted, POSITIONS: () => POSITIONS, QK_NORMS: () => QK_NORMS, ROUTERS: () => ROUTERS, TransformerShape: () => TransformerShape, _booleans: () => _booleans, _sums: () => _sums, cached_property: () => cached_property, choose: () => choose, dataclass: () => dataclass, named: () => named, no_value_embeddings: () => no_value_embeddings, pattern: () => pattern, positive: () => positive, replace: () => replace, whole: () => whole, without_window: () => without_window};
});
$.module("accounting.policy", () => {
let ALLOCATORS, ATTENTION_KERNELS, CHECKPOINTINGS, DEFAULT, GATE_KERNELS, GRADIENT_DTYPES, LOGITS_CHUNK_BYTES, LOSSES, LOSS_KERNELS, MODEL_CODES, NORM_KERNELS, OPTIMIZERS, OPTIMIZER_STEPS, PRECISIONS, Policy, Precision, choose, dataclass, positive;

dataclass = $.libraries.dataclasses.dataclass;
choose = $.from("accounting.shape", "choose");
positive = $.from("accounting.shape", "positive");
ATTENTION_KERNELS = ["fused", "eager", "blocks"];
NORM_KERNELS = ["fused", "normalised", "composite"];
GATE_KERNELS = ["composite", "fused"];
CHECKPOINTINGS = ["none", "selective", "full"];
LOSSES = ["plain", "chunked"];
LOSS_KERNELS = ["operators", "fused"];
OPTIMIZERS = ["adamw", "adamw8bit", "sgd", "muon"];
OPTIMIZER_STEPS = ["fused", "foreach", "loop"];
ALLOCATORS = ["exact", "cuda"];
GRADIENT_DTYPES = ["weights", "fp32"];
MODEL_CODES = ["lm", "transformers"];
LOGITS_CHUNK_BYTES = $.shift(512n, 20n);
Precision = $.class("Precision", [], true, [["weights", undefined, false], ["residual", undefined, false], ["activations", undefined, false], ["master_weights", undefined, false]], [

]);
PRECISIONS = $.dict([["fp32", Precision(4n, 4n, 4n, false)], ["bf16", Precision(2n, 2n, 2n, true)], ["autocast", Precision(4n, 4n, 2n, false)]]);
Policy = $.class("Policy", [], true, [["precision", () => "fp32", false], ["optimizer", () => "adamw", false], ["optimizer_step", () => "fused", false], ["attention_kernel", () => "fused", false], ["norm_kernel", () => "fused", false], ["gate_kernel", () => "composite", false], ["activation_checkpointing", () => "none", false], ["loss", () => "plain", false], ["loss_kernel", () => "operators", false], ["logits_chunk_bytes", () => LOGITS_CHUNK_BYTES, false], ["gradient_accumulation", () => false, false], ["allocator", () => "exact", false], ["gradient_dtype", () => "weights", false], ["overhead_bytes", () => 0n, false], ["model_code", () => "lm", false]], [
["method", "__post_init__", $.fn([], function () {
const self = this;
let among, name;
for (const $$1 of $.iter([["precision", $.tuple(PRECISIONS)], ["optimizer", OPTIMIZERS], ["optimizer_step", OPTIMIZER_STEPS], ["attention_kernel", ATTENTION_KERNELS], ["norm_kernel", NORM_KERNELS], ["gate_kernel", GATE_KERNELS], ["activation_checkpointing", CHECKPOINTINGS], ["loss", LOSSES], ["loss_kernel", LOSS_KERNELS], ["allocator", ALLOCATORS], ["gradient_dtype", GRADIENT_DTYPES], ["model_code", MODEL_CODES]])) {
[name, among] = $.unpack($$1, 2n, -1n);
choose(name, $.getattr(self, name), among);
}
positive("logits_chunk_bytes", self.logits_chunk_bytes);
if (($.truth($.isinstance(self.overhead_bytes, $.bool)) || !$.truth($.isinstance(self.overhead_bytes, $.int)) || $.lt(self.overhead_bytes, 0n))) {
throw $.ValueError(["overhead_bytes must be a whole number of at least 0, and ", $.format(self.overhead_bytes, "r", ""), " is not"].join(''));
}
if (!$.truth($.isinstance(self.gradient_accumulation, $.bool))) {
throw $.ValueError(["gradient_accumulation must be True or False, and ", $.format(self.gradient_accumulation, "r", ""), " is neither"].join(''));
}
})],
["property", "bytes", $.fn([], function () {
const self = this;
return $.item(PRECISIONS, self.precision);
})],
["property", "gradient_bytes", $.fn([], function () {
const self = this;
return ($.eq(self.gradient_dtype, "fp32") ? 4n : self.bytes.weights);
})],
["property", "accumulates", $.fn([], function () {
const self = this;
return $.or(self.gradient_accumulation, () => $.eq(self.gradient_dtype, "fp32"));
})],
["property", "description", $.fn([], function () {
const self = this;
return [$.format(self.precision, "", ""), ", ", $.format(self.attention_kernel, "", ""), " attention, ", $.format(self.norm_kernel, "", ""), " norms, ", $.format(self.loss, "", ""), " loss, activation checkpointing ", $.format(self.activation_checkpointing, "", "")].join('');
})]
]);
DEFAULT = Policy();
return {ALLOCATORS: () => ALLOCATORS, ATTENTION_KERNELS: () => ATTENTION_KERNELS, CHECKPOINTINGS: () => CHECKPOINTINGS, DEFAULT: () => DEFAULT, GATE_KERNELS: () => GATE_KERNELS, GRADIENT_DTYPES: () => GRADIENT_DTYPES, LOGITS_CHUNK_BYTES: () => LOGITS_CHUNK_BYTES, LOSSES: () => LOSSES, LOSS_KERNELS: () => LOSS_KERNELS, MODEL_CODES: () => MODEL_CODES, NORM_KERNELS: () => NORM_KERNELS, OPTIMIZERS: () => OPTIMIZERS, OPTIMIZER_STEPS: () => OPTIMIZER_STEPS, PRECISIONS: () => PRECISIONS, Policy: () => Policy, Precision: () => Precision, choose: () => choose, dataclass: () => dataclass, positive: () => positive};
});
$.module("accounting.planning.step_time", () => {
let ATTENTION, Bytes, Component, DEFAULT, Device, EXPERT_PASSES, HIDDEN, Interconnect, Joins, Layout, MIXTURE_RATE, PASSES, Place, Policy, RECOMPUTED_PASSES, Seconds, StepTime, Term, TransformerShape, _StageTime, backward_terms, dataclass, device_flops, device_forward_pass, device_traffic, head_tensors, positive, replace, replicated, saved_by_layers, shard_of, total_bytes, zero_traffic;

dataclass = $.libraries.dataclasses.dataclass;
replace = $.libraries.dataclasses.replace;
device_flops = $.from("accounting.cluster.device", "device_flops");
replicated = $.from("accounting.cluster.device", "replicated");
Layout = $.from("accounting.cluster.layout", "Layout");
Place = $.from("accounting.cluster.layout", "Place");
device_forward_pass = $.from("accounting.cluster.memory", "device_forward_pass");
Joins = $.from("accounting.cluster.traffic", "Joins");
device_traffic = $.from("accounting.cluster.traffic", "device_traffic");
shard_of = $.from("accounting.cluster.zero", "shard_of");
zero_traffic = $.from("accounting.cluster.zero", "zero_traffic");
backward_terms = $.from("accounting.counting.flops", "backward_terms");
Term = $.from("accounting.formula", "Term");
Device = $.from("accounting.hardware.devices", "Device");
Interconnect = $.from("accounting.hardware.interconnect", "Interconnect");
head_tensors = $.from("accounting.memory.activations", "head_tensors");
saved_by_layers = $.from("accounting.memory.activations", "saved_by_layers");
Component = $.from("accounting.memory.records", "Component");
total_bytes = $.from("accounting.memory.records", "total_bytes");
DEFAULT = $.from("accounting.policy", "DEFAULT");
Policy = $.from("accounting.policy", "Policy");
TransformerShape = $.from("accounting.shape", "TransformerShape");
positive = $.from("accounting.shape", "positive");
Bytes = $.from("accounting.units", "Bytes");
Seconds = $.from("accounting.units", "Seconds");
ATTENTION = 0.193;
PASSES = 7.32;
HIDDEN = 0.512;
EXPERT_PASSES = 25.1;
MIXTURE_RATE = 0.5;
RECOMPUTED_PASSES = 0.4;
StepTime = $.class("StepTime", [], true, [["matmul", undefined, false], ["memory", undefined, false], ["tensor", undefined, false], ["context", undefined, false], ["expert", undefined, false], ["bubble", undefined, false], ["data", undefined, false], ["optimizer", undefined, false], ["link_bytes", undefined, false], ["network_bytes", undefined, false]], [
["property", "parts", $.fn([], function () {
const self = this;
let names;
names = ["matmul", "memory", "tensor", "context", "expert", "bubble", "data", "optimizer"];
return $.dict((() => { const $all = [];
for (const $$1 of $.iter(names)) {
let name;
name = $$1;
$all.push([name, $.getattr(self, name)]);} return $all; })());
})],
["property", "total", $.fn([], function () {
const self = this;
return Seconds($.sum((() => { const $all = [];
for (const $$2 of $.iter($.method(self.parts, "values")())) {
let seconds;
seconds = $$2;
$all.push($.float(seconds));} return $all; })()));
})],
["property", "bound", $.fn([], function () {
const self = this;
return $.call($.max, [self.parts], {key: ((name) => $.float($.item(self.parts, name)))});
})]
]);
const step_time = $.fn(["shape", "layout", "device", "interconnect", "batch_size", "seq_len", "policy", "pairs", "efficiency", "virtual_stages"], function (shape, layout, device, interconnect, batch_size = 1n, seq_len = null, policy = DEFAULT, pairs = "full", efficiency = null, virtual_stages = 1n) {
let common, exposed, idle, passes, stage, stages, window;
if ($.is(efficiency, null)) {
efficiency = matmul_efficiency(device);
}
if (($.truth($.isinstance(efficiency, $.bool)) || !($.lt(0n, efficiency) && $.le(efficiency, 1n)))) {
throw $.ValueError(["expected efficiency above 0 and at most 1, got ", $.format(efficiency, "r", "")].join(''));
}
positive("virtual_stages", virtual_stages);
stages = $.set([0n, $.sub(layout.pipeline, 1n)]);
common = [shape, layout, device, interconnect, batch_size, seq_len, policy, pairs, efficiency];
stage = $.call($.max, [(() => { const $all = [];
for (const $$3 of $.iter(stages)) {
let stage;
stage = $$3;
$all.push(_stage_time(Place(stage), ...$.iter(common)));} return $all; })()], {key: ((time) => time.micro_batch)});
idle = $.div($.sub(layout.pipeline, 1n), virtual_stages);
passes = layout.micro_batches;
window = $.mul(stage.micro_batch, $.method($.dict([[2n, $.div($.mul(passes, 2n), 3n)], [3n, passes]]), "get")(layout.zero, $.div(2n, 3n)));
exposed = $.sub(stage.data, $.mul(HIDDEN, $.min(stage.data, window)));
return StepTime(Seconds($.mul(stage.matmul, passes)), Seconds($.mul(stage.memory, passes)), Seconds($.mul(stage.tensor, passes)), Seconds($.mul(stage.context, passes)), Seconds($.mul(stage.expert, passes)), Seconds($.mul($.add(stage.micro_batch, stage.pipeline), idle)), Seconds(exposed), Seconds(stage.optimizer), Bytes(stage.link_bytes), Bytes(stage.network_bytes));
});
const matmul_efficiency = $.fn(["device"], function (device) {
return $.min(1.0, device.attainable);
});
_StageTime = $.class("_StageTime", [], true, [["matmul", undefined, false], ["memory", undefined, false], ["tensor", undefined, false], ["context", undefined, false], ["expert", undefined, false], ["pipeline", undefined, false], ["data", undefined, false], ["optimizer", undefined, false], ["link_bytes", undefined, false], ["network_bytes", undefined, false]], [
["property", "micro_batch", $.fn([], function () {
const self = this;
return $.add($.add($.add($.add(self.matmul, self.memory), self.tensor), self.context), self.expert);
})]
]);
const _stage_time = $.fn(["place", "shape", "layout", "device", "interconnect", "batch_size", "seq_len", "policy", "pairs", "efficiency"], function (place, shape, layout, device, interconnect, batch_size, seq_len, policy, pairs, efficiency) {
let both, copies, expert, ffn, flops, forward, group, groups, in_node, link, link_bytes, matmul, members, memory, memory_time, micro_batches, mixture, network, network_bytes, number, one, peak, recomputed, rings, scores, seconds, sent, size, slowed, stride, trained, weights;
flops = $.call(device_flops, [shape, layout, place, batch_size, seq_len], {pairs: pairs});
forward = $.int(flops.total);
recomputed = $.item($.dict([["none", 0n], ["selective", $.int($.item(flops, "scores"))], ["full", $.sub(forward, ($.eq(place.stage, $.sub(layout.pipeline, 1n)) ? $.int($.item(flops, "head")) : 0n))]]), policy.activation_checkpointing);
peak = $.float(device.peak(($.eq(policy.precision, "fp32") ? "fp32" : "bf16")));
both = $.add(forward, $.sum($.method(backward_terms(shape, $.dict((() => { const $all = [];
for (const $$4 of $.iter(flops)) {
let name;
name = $$4;
$all.push([name, $.int($.item(flops, name))]);} return $all; })())), "values")()));
scores = $.mul($.int($.item(flops, "scores")), ($.eq(policy.activation_checkpointing, "none") ? 3n : 4n));
ffn = $.mul($.int($.item(flops, "ffn")), ($.eq(policy.activation_checkpointing, "full") ? 4n : 3n));
mixture = $.gt(shape.most_experts, 1n);
slowed = ($.truth(mixture) ? $.mul($.add(scores, ffn), $.sub($.div(1n, MIXTURE_RATE), 1n)) : $.mul(scores, $.sub($.div(1n, ATTENTION), 1n)));
trained = $.sum((() => { const $all = [];
for (const $$5 of $.iter(replicated(shape, layout, place))) {
let one;
one = $$5;
$all.push($.int(one.trained));} return $all; })());
weights = $.mul(trained, $.add($.mul(2n, policy.bytes.weights), $.mul(2n, policy.gradient_bytes)));
sent = $.call(device_traffic, [shape, layout, place, batch_size, seq_len], {policy: policy}).by_group();
groups = $.as_list([[Joins.TENSOR, $.int($.item(sent, Joins.TENSOR)), layout.tensor, 1n], [Joins.CONTEXT, $.int($.item(sent, Joins.CONTEXT)), layout.context, layout.tensor], [Joins.EXPERT, $.int($.item(sent, Joins.EXPERT)), layout.expert, layout.tensor], [Joins.PIPELINE, $.int($.item(sent, Joins.PIPELINE)), layout.pipeline, $.mul(layout.tensor, layout.replicas)]]);
micro_batches = layout.micro_batches;
number = [Term(policy.bytes.weights), Term(policy.gradient_bytes), layout.zero, Term(micro_batches)];
for (const $$6 of $.iter(replicated(shape, layout, place))) {
one = $$6;
copies = $.int(one.devices);
if ($.gt(copies, 1n)) {
size = $.sum((() => { const $all = [];
for (const $$7 of $.iter($.method(zero_traffic(one, ...$.iter(number)), "values")())) {
let term;
term = $$7;
$all.push($.int(term));} return $all; })());
$.method(groups, "append")([Joins.DATA, size, copies, $.floordiv($.mul(layout.tensor, layout.replicas), copies)]);
}
}
rings = $.mul($.method($.dict([[3n, $.mul(3n, micro_batches)], [2n, $.add(1n, micro_batches)]]), "get")(layout.zero, 2n), $.negative($.floordiv($.negative(shape.num_layers), layout.pipeline)));
[seconds, link_bytes, network_bytes] = $.unpack([$.method($.dict, "fromkeys")(Joins, 0.0), 0n, 0n], 3n, -1n);
for (const $$8 of $.iter(groups)) {
[group, size, members, stride] = $.unpack($$8, 4n, -1n);
in_node = $.max(1n, $.min(members, $.floordiv(interconnect.node_size, stride)));
[link, network] = $.unpack(_shares(size, members, stride, interconnect.node_size), 2n, -1n);
if (($.is(group, Joins.EXPERT) && $.truth(network))) {
network = _between_nodes(size, members, in_node, $.max((() => { const $all = [];
for (const $$9 of $.iter(shape.ffns)) {
let one;
one = $$9;
$all.push(one.active);} return $all; })()));
}
$.set_item(seconds, group, $.iadd($.item(seconds, group), $.max($.div(link, interconnect.reached), $.div(network, interconnect.network_reached))));
if ($.is(group, Joins.DATA)) {
$.set_item(seconds, group, $.iadd($.item(seconds, group), $.mul(rings, interconnect.latency(members, in_node))));
}
[link_bytes, network_bytes] = $.unpack([$.add(link_bytes, link), $.add(network_bytes, network)], 2n, -1n);
}
matmul = $.div($.add($.add(both, recomputed), slowed), $.mul(peak, efficiency));
memory = $.add(_elementwise_bytes(shape, layout, place, batch_size, seq_len, policy), weights);
memory_time = $.div(memory, $.float(device.known_bandwidth));
expert = $.div($.item(seconds, Joins.EXPERT), micro_batches);
return $.call(_StageTime, [], {matmul: matmul, memory: memory_time, tensor: $.div($.item(seconds, Joins.TENSOR), micro_batches), context: $.div($.item(seconds, Joins.CONTEXT), micro_batches), expert: $.sub(expert, $.mul(HIDDEN, $.min(expert, $.add(matmul, memory_time)))), pipeline: $.div($.item(seconds, Joins.PIPELINE), micro_batches), data: $.item(seconds, Joins.DATA), optimizer: $.div(_optimizer_bytes(shape, layout, place, policy), $.float(device.known_bandwidth)), link_bytes: link_bytes, network_bytes: network_bytes});
});
const _shares = $.fn(["sent", "devices", "stride", "node_size"], function (sent, devices, stride, node_size) {
let in_node;
in_node = ($.le(stride, node_size) ? $.max(1n, $.min(devices, $.floordiv(node_size, stride))) : 1n);
if ($.ge(in_node, devices)) {
return [sent, 0n];
}
return [($.gt(in_node, 1n) ? sent : 0n), $.floordiv(sent, in_node)];
});
const _between_nodes = $.fn(["sent", "devices", "in_node", "experts"], function (sent, devices, in_node, experts) {
let nodes, reached;
nodes = $.negative($.floordiv($.negative(devices), in_node));
reached = $.mul($.sub(nodes, 1n), $.sub(1n, $.pow($.sub(1n, $.div(1n, nodes)), experts)));
return $.round($.div($.mul(sent, reached), $.div($.mul(experts, $.sub(devices, 1n)), devices)));
});
const _elementwise_bytes = $.fn(["shape", "layout", "place", "batch_size", "seq_len", "policy"], function (shape, layout, place, batch_size, seq_len, policy) {
let components, inside, passes, run, size;
run = device_forward_pass(shape, layout, place, batch_size, seq_len, $.call(replace, [policy], {activation_checkpointing: "none"}));
passes = $.dict([]);
if ($.gt(shape.most_experts, 1n)) {
inside = [Component.FFN_HIDDEN, Component.SHARED_FFN_HIDDEN];
passes = $.dict([[Component.ROUTER, 0.0], ...$.entries($.method($.dict, "fromkeys")(inside, EXPERT_PASSES))]);
}
components = $.as_list([saved_by_layers(run, run.stack.counts)]);
if ($.eq(place.stage, $.sub(layout.pipeline, 1n))) {
$.method(components, "append")(head_tensors(run));
}
size = $.sum((() => { const $all = [];
for (const $$10 of $.iter(components)) {
let saved;
saved = $$10;
for (const $$11 of $.iter($.method(saved, "items")())) {
let component, tensors;
[component, tensors] = $.unpack($$11, 2n, -1n);
$all.push($.mul($.int(total_bytes(tensors)), $.method(passes, "get")(component, PASSES)));}} return $all; })());
return ($.eq(policy.activation_checkpointing, "full") ? $.mul(size, $.add(1n, RECOMPUTED_PASSES)) : size);
});
const _optimizer_bytes = $.fn(["shape", "layout", "place", "policy"], function (shape, layout, place, policy) {
let each, share, weight;
share = $.sum((() => { const $all = [];
for (const $$12 of $.iter(replicated(shape, layout, place))) {
let one;
one = $$12;
$all.push($.int(($.truth(layout.zero) ? shard_of(one.trained, one.devices) : one.trained)));} return $all; })());
weight = policy.bytes.weights;
each = $.add($.add($.add($.mul(2n, 8n), weight), $.mul(2n, weight)), ($.truth(policy.bytes.master_weights) ? 8n : 0n));
return $.mul(share, each);
});
return {ATTENTION: () => ATTENTION, Bytes: () => Bytes, Component: () => Component, DEFAULT: () => DEFAULT, Device: () => Device, EXPERT_PASSES: () => EXPERT_PASSES, HIDDEN: () => HIDDEN, Interconnect: () => Interconnect, Joins: () => Joins, Layout: () => Layout, MIXTURE_RATE: () => MIXTURE_RATE, PASSES: () => PASSES, Place: () => Place, Policy: () => Policy, RECOMPUTED_PASSES: () => RECOMPUTED_PASSES, Seconds: () => Seconds, StepTime: () => StepTime, Term: () => Term, TransformerShape: () => TransformerShape, _StageTime: () => _StageTime, _between_nodes: () => _between_nodes, _elementwise_bytes: () => _elementwise_bytes, _optimizer_bytes: () => _optimizer_bytes, _shares: () => _shares, _stage_time: () => _stage_time, backward_terms: () => backward_terms, dataclass: () => dataclass, device_flops: () => device_flops, device_forward_pass: () => device_forward_pass, device_traffic: () => device_traffic, head_tensors: () => head_tensors, matmul_efficiency: () => matmul_efficiency, positive: () => positive, replace: () => replace, replicated: () => replicated, saved_by_layers: () => saved_by_layers, shard_of: () => shard_of, step_time: () => step_time, total_bytes: () => total_bytes, zero_traffic: () => zero_traffic};
});
$.module("accounting.memory.records", () => {
let Breakdown, Bytes, Component, Enum, Group, Item, Iterable, MADE_ONCE, Mapping, OF_FFN, Phase, PhaseKind, Term, added, dataclass;

Iterable = $.libraries.collections_abc.Iterable;
Mapping = $.libraries.collections_abc.Mapping;
dataclass = $.libraries.dataclasses.dataclass;
Enum = $.libraries.enum.Enum;
Breakdown = $.from("accounting.breakdown", "Breakdown");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
Bytes = $.from("accounting.units", "Bytes");
Component = $.class("Component", [Enum], false, [], [
["value", ["TOKEN_IDS"], "token ids"],
["value", ["TABLES"], "tables"],
["value", ["MASK"], "mask"],
["value", ["NORMS"], "norms"],
["value", ["ATTENTION_INPUT"], "attention input"],
["value", ["LATENTS"], "latents"],
["value", ["QK_NORMS"], "query and key norms"],
["value", ["QK_SCALES"], "query scales"],
["value", ["QKV"], "queries, keys, values"],
["value", ["QKV_COPIES"], "queries, keys, values again"],
["value", ["ATTENTION_WEIGHTS"], "attention weights"],
["value", ["ATTENTION_OUTPUT"], "attention output"],
["value", ["FFN_INPUT"], "ffn input"],
["value", ["FFN_HIDDEN"], "ffn hidden"],
["value", ["SHARED_FFN_HIDDEN"], "shared ffn hidden"],
["value", ["ROUTER"], "router"],
["value", ["ADAPTERS_OF_ATTENTION"], "adapters of attention"],
["value", ["ADAPTERS_OF_FFN"], "adapters of ffn"],
["value", ["WEIGHTS_IN_BF16"], "weights in bf16"],
["value", ["BLOCK_INPUTS"], "block inputs"],
["value", ["FINAL_NORM"], "final norm"],
["value", ["HEAD_INPUT"], "head input"],
["value", ["HEAD_IN_BF16"], "head in bf16"],
["value", ["LOSS"], "loss"]
]);
OF_FFN = $.frozenset($.set([Component.FFN_INPUT, Component.FFN_HIDDEN, Component.SHARED_FFN_HIDDEN, Component.ROUTER, Component.ADAPTERS_OF_FFN]));
MADE_ONCE = $.frozenset($.set([Component.TABLES, Component.MASK]));
Group = $.class("Group", [Enum], false, [], [
["value", ["PARAMETERS"], "parameters"],
["value", ["GRADIENTS"], "gradients"],
["value", ["OPTIMIZER_STATE"], "optimizer state"],
["value", ["SAVED"], "saved"],
["value", ["THIS_BLOCK"], "this block"],
["value", ["IN_FLIGHT"], "in flight"],
["value", ["TEMPORARY"], "temporary"],
["value", ["ALLOCATOR"], "allocator"],
["value", ["OVERHEAD"], "fixed overhead"]
]);
PhaseKind = $.class("PhaseKind", [Enum], false, [], [
["value", ["FORWARD"], "forward"],
["value", ["BACKWARD"], "backward"],
["value", ["OPTIMIZER_STEP"], "optimizer step"]
]);
Item = $.class("Item", [], true, [["name", undefined, false], ["group", undefined, false], ["tensors", undefined, false]], [
["property", "bytes", $.fn([], function () {
const self = this;
return total_bytes(self.tensors);
})]
]);
const items = $.fn(["group", "components"], function (group, components) {
return $.as_list((() => { const $all = [];
for (const $$1 of $.iter($.method(components, "items")())) {
let component, found;
[component, found] = $.unpack($$1, 2n, -1n);
$all.push(Item([$.format(group.value, "", ""), ": ", $.format(component.value, "", "")].join(''), group, found));} return $all; })());
});
const temporary = $.fn(["name"], function (name, ...tensors) {
return Item(name, Group.TEMPORARY, $.list(tensors));
});
const total_bytes = $.fn(["tensors"], function (tensors) {
return added((() => { const $all = [];
for (const $$2 of $.iter(tensors)) {
let count, size;
[count, size] = $.unpack($$2, 2n, -1n);
$all.push($.mul(count, size));} return $all; })());
});
const plain_bytes = $.fn(["tensors"], function (tensors) {
return $.sum((() => { const $all = [];
for (const $$3 of $.iter(tensors)) {
let count, size;
[count, size] = $.unpack($$3, 2n, -1n);
$all.push($.mul($.int(count), $.int(size)));} return $all; })());
});
Phase = $.class("Phase", [Breakdown], true, [["kind", undefined, false], ["moment", undefined, false], ["groups", undefined, false]], [
["method", "by_group", $.fn([], function () {
const self = this;
let _, group, sums, term;
sums = $.method($.dict, "fromkeys")(Group, 0n);
for (const $$4 of $.iter($.call($.zip, [self.groups, self.terms], {strict: true}))) {
[group, [_, term]] = $.unpack($$4, 2n, -1n);
$.set_item(sums, group, $.iadd($.item(sums, group), $.int(term)));
}
return $.dict((() => { const $all = [];
for (const $$5 of $.iter($.method(sums, "items")())) {
let group, value;
[group, value] = $.unpack($$5, 2n, -1n);
$all.push([group, Bytes(value)]);} return $all; })());
})]
]);
const phase = $.fn(["moment", "kind", "alive", "convention", "place"], function (moment, kind, alive, convention, place = "") {
let groups, item, terms, title;
terms = $.dict([]);
groups = $.dict([]);
for (const $$6 of $.iter(alive)) {
item = $$6;
$.set_item(terms, item.name, ($.has(item.name, terms) ? $.add($.item(terms, item.name), item.bytes) : item.bytes));
$.set_item(groups, item.name, item.group);
}
title = ($.truth(place) ? ["memory of ", $.format(place, "", ""), ": ", $.format(moment, "", "")].join('') : moment);
return Phase(title, Bytes, $.tuple($.method(terms, "items")()), convention, kind, moment, $.tuple($.method(groups, "values")()));
});
return {Breakdown: () => Breakdown, Bytes: () => Bytes, Component: () => Component, Enum: () => Enum, Group: () => Group, Item: () => Item, Iterable: () => Iterable, MADE_ONCE: () => MADE_ONCE, Mapping: () => Mapping, OF_FFN: () => OF_FFN, Phase: () => Phase, PhaseKind: () => PhaseKind, Term: () => Term, added: () => added, dataclass: () => dataclass, items: () => items, phase: () => phase, plain_bytes: () => plain_bytes, temporary: () => temporary, total_bytes: () => total_bytes};
});
$.module("accounting.formula", () => {
let Iterable, Term, _ATOM, _PRODUCT, _QUOTIENT, _SUM;

Iterable = $.libraries.collections_abc.Iterable;
[_SUM, _QUOTIENT, _PRODUCT, _ATOM] = $.unpack([1n, 2n, 3n, 4n], 4n, -1n);
Term = $.class("Term", [$.int], false, [["_operation", undefined, false], ["_operands", undefined, false]], [
["new", "__new__", $.fn(["cls", "value", "operation", "operands"], function (cls, value, operation = "", operands = []) {
let term;
term = $.int.__new__(cls, value);
term._operation = operation;
term._operands = operands;
return term;
})],
["method", "__add__", $.fn(["other"], function (other) {
const self = this;
if (($.is($.type(other), $.int) && $.eq(other, 0n))) {
return self;
}
return Term($.int.__add__(self, _whole(other)), "+", [self, other]);
})],
["method", "__radd__", $.fn(["other"], function (other) {
const self = this;
if (($.is($.type(other), $.int) && $.eq(other, 0n))) {
return self;
}
return Term($.int.__add__(self, _whole(other)), "+", [other, self]);
})],
["method", "__sub__", $.fn(["other"], function (other) {
const self = this;
if (($.is($.type(other), $.int) && $.eq(other, 0n))) {
return self;
}
return Term($.int.__sub__(self, _whole(other)), "-", [self, other]);
})],
["method", "__rsub__", $.fn(["other"], function (other) {
const self = this;
return Term($.sub(_whole(other), $.int(self)), "-", [other, self]);
})],
["method", "__mul__", $.fn(["other"], function (other) {
const self = this;
if (($.is($.type(other), $.int) && $.eq(other, 1n))) {
return self;
}
return Term($.int.__mul__(self, _whole(other)), "·", [self, other]);
})],
["method", "__rmul__", $.fn(["other"], function (other) {
const self = this;
if (($.is($.type(other), $.int) && $.eq(other, 1n))) {
return self;
}
return Term($.int.__mul__(self, _whole(other)), "·", [other, self]);
})],
["method", "__floordiv__", $.fn(["other"], function (other) {
const self = this;
if (($.is($.type(other), $.int) && $.eq(other, 1n))) {
return self;
}
return Term($.int.__floordiv__(self, _whole(other)), "//", [self, other]);
})],
["method", "__mod__", $.fn(["other"], function (other) {
const self = this;
return Term($.int.__mod__(self, _whole(other)), "%", [self, other]);
})],
["method", "text", $.fn(["values"], function (values = false) {
const self = this;
return $.item(self._render(values), 0n);
})],
["method", "_render", $.fn(["values"], function (values) {
const self = this;
let binding, first, last, left, right, terms;
if (!$.truth(self._operands)) {
return (($.truth(values) || !$.truth(self._operation)) ? [[$.format($.int(self), "", [","].join(''))].join(''), _ATOM] : [self._operation, _ATOM]);
}
if ($.eq(self._operation, "+")) {
terms = $.as_list([]);
first = self;
while (($.truth($.isinstance(first, Term)) && $.eq(first._operation, "+"))) {
[first, last] = $.unpack(first._operands, 2n, -1n);
$.method(terms, "append")(last);
}
return [$.method(" + ", "join")((() => { const $all = [];
for (const $$1 of $.iter($.as_list([first, ...$.iter($.reversed(terms))]))) {
let term;
term = $$1;
$all.push($.item(_render(term, values), 0n));} return $all; })()), _SUM];
}
[left, right] = $.unpack((() => { const $all = [];
for (const $$2 of $.iter(self._operands)) {
let operand;
operand = $$2;
$all.push(_render(operand, values));} return $all; })(), 2n, -1n);
if ($.eq(self._operation, "-")) {
return [[$.format($.item(left, 0n), "", ""), " - ", $.format(_bracket(right, _QUOTIENT), "", "")].join(''), _SUM];
}
if ($.has(self._operation, ["//", "%"])) {
return [[$.format(_bracket(left, _QUOTIENT), "", ""), $.format(self._operation, "", ""), $.format(_bracket(right, _ATOM), "", "")].join(''), _QUOTIENT];
}
binding = ($.eq($.item(left, 1n), _QUOTIENT) ? _QUOTIENT : _PRODUCT);
return [[$.format(_bracket(left, _QUOTIENT), "", ""), "·", $.format(_bracket(right, _PRODUCT), "", "")].join(''), binding];
})]
]);
const Symbol = $.fn(["name", "value"], function (name, value) {
return Term(value, name);
});
const constant = $.fn(["value"], function (value) {
return ($.truth($.isinstance(value, Term)) ? value : Term(value));
});
const added = $.fn(["terms"], function (terms) {
let term, total;
total = Term(0n);
for (const $$3 of $.iter(terms)) {
term = $$3;
if (($.truth(term._operands) || $.truth(term))) {
total = ((!$.truth(total._operands) && $.eq(total, 0n)) ? term : $.add(total, term));
}
}
return total;
});
const _whole = $.fn(["operand"], function (operand) {
if (!$.truth($.isinstance(operand, $.int))) {
throw $.TypeError(["a formula is of whole numbers, and ", $.format(operand, "r", ""), " is none: use // by an int, or float() first"].join(''));
}
return operand;
});
const _render = $.fn(["operand", "values"], function (operand, values) {
return ($.truth($.isinstance(operand, Term)) ? operand._render(values) : [[$.format($.int(operand), "", [","].join(''))].join(''), _ATOM]);
});
const _bracket = $.fn(["rendered", "at_least"], function (rendered, at_least) {
let binding, text;
[text, binding] = $.unpack(rendered, 2n, -1n);
return ($.ge(binding, at_least) ? text : ["(", $.format(text, "", ""), ")"].join(''));
});
return {Iterable: () => Iterable, Symbol: () => Symbol, Term: () => Term, _ATOM: () => _ATOM, _PRODUCT: () => _PRODUCT, _QUOTIENT: () => _QUOTIENT, _SUM: () => _SUM, _bracket: () => _bracket, _render: () => _render, _whole: () => _whole, added: () => added, constant: () => constant};
});
$.module("accounting.breakdown", () => {
let Breakdown, Count, Iterator, Mapping, SYMBOLS, Term, constant, dataclass;

Iterator = $.libraries.collections_abc.Iterator;
Mapping = $.libraries.collections_abc.Mapping;
dataclass = $.libraries.dataclasses.dataclass;
Term = $.from("accounting.formula", "Term");
constant = $.from("accounting.formula", "constant");
Count = $.from("accounting.units", "Count");
SYMBOLS = $.dict([["batch", "sequences in a batch"], ["seq", "positions of a sequence"], ["context", "positions already in the cache, the new one included"], ["vocab", "rows of the vocabulary, padding included"], ["vocab_unpadded", "rows of the vocabulary without padding"], ["max_seq", "longest sequence the model reads: rows of learned positions, or of the table of rotations"], ["n_layers", "layers"], ["window_layers", "layers with a window"], ["full_layers", "layers without a window"], ["softmax_layers", "layers with softmax attention, where others have none"], ["latent_layers", "layers with latent attention, where others have none"], ["delta_layers", "layers with linear attention (Gated DeltaNet)"], ["key_heads", "heads of queries and keys in linear attention"], ["value_heads", "heads of values in linear attention"], ["key_dim", "width of a key head in linear attention"], ["kernel", "positions of the convolution in linear attention"], ["expert_elements", "elements of the matrices of the experts"], ["other_elements", "elements of the blocks beside the matrices of the experts"], ["rotated_layers", "layers with rotary positions, where others have none"], ["unrotated_layers", "layers without"], ["expert_rotated_layers", "layers with experts and rotary positions"], ["expert_unrotated_layers", "layers with experts and without rotary positions"], ["dense_rotated_layers", "layers without experts and with rotary positions"], ["dense_unrotated_layers", "layers without both"], ["value_layers", "layers with a value embedding"], ["d_model", "width of the residual stream"], ["n_heads", "query heads"], ["n_kv_heads", "key and value heads"], ["head_dim", "width of one head"], ["d_ff", "width of the feed-forward layer, of one expert where there are several"], ["n_experts", "experts in a layer"], ["held_experts", "experts of a layer whose weights a device has"], ["active_experts", "experts that a token passes in a layer"], ["expert_layers", "layers with experts"], ["dense_layers", "layers with one feed-forward layer where the others have experts"], ["dense_d_ff", "width of the feed-forward layer of those"], ["shared_d_ff", "width of the feed-forward layer that every token passes beside its experts"], ["q_rank", "width of the latent of queries"], ["kv_rank", "width of the latent of keys and values"], ["nope_dim", "part of a query and key that is not rotated"], ["rope_dim", "part of a query and key that is rotated"], ["value_dim", "width of a value"], ["window", "positions that a sliding window shows, the query's own included"], ["n_params", "parameters; of Muon those that are left to AdamW"], ["embedding_params", "parameters of the embedding, the learned positions and the head"], ["lora_rank", "rank of the adapters"], ["adapter_params", "parameters of the adapters, which alone are trained"], ["block_adapters", "of them, those of one block"], ["block_params", "parameters of one block, its norms not among them"], ["expert_params", "parameters of the experts on a device"], ["block_experts", "parameters of the experts of one block on a device"], ["block_weights", "elements of the matrices of one block"], ["n_tensors", "tensors that the parameters are"], ["ffn_params", "parameters of one block's feed-forward layer"], ["expert_ffn_params", "parameters of the feed-forward layers of one block with experts"], ["dense_ffn_params", "parameters of the feed-forward layer of one block without"], ["attention_params", "parameters of one block's attention"], ["block_scores", "scores that one head saves of a block of queries"], ["chunk_rows", "rows of logits alive at once in the chunked loss"], ["act_bytes", "bytes of one element that matrix multiplications read and give"], ["residual_bytes", "bytes of one element of the residual stream"], ["weight_bytes", "bytes of one weight"], ["gradient_bytes", "bytes of one gradient where gradients are added up"], ["overhead_bytes", "bytes of driver, context and libraries, as given"], ["dp", "devices that hold the same weights: data-parallel replicas and those that share sequences"], ["edp", "of them, those that hold the same experts"], ["cp", "devices that share a sequence (context parallelism)"], ["ep", "devices that share the experts (expert parallelism)"], ["tp", "devices that share a layer (tensor parallelism)"], ["replicated_params", "parameters that every tensor-parallel device holds"], ["in_flight", "other micro-batches in flight"], ["micro_batches", "micro-batches of a step"], ["last_shard", "what is left for the last shard"], ["newest_gradient", "bytes of the newest gradient"], ["matrix_rows", "smaller side of the largest matrix"], ["matrix_columns", "larger side of the largest matrix"], ["largest_tensor", "elements of the largest tensor"], ["quantised_params", "elements of tensors large enough for 8-bit states"], ["scale_blocks", "their blocks of 256"], ["muon_params", "elements of the matrices of the blocks"], ["block_elements", "elements of the weights of the blocks, of experts those that are read"]]);
Breakdown = $.class("Breakdown", [Mapping], true, [["title", undefined, false], ["unit", undefined, false], ["terms", undefined, false], ["convention", undefined, false]], [
["property", "total", $.fn([], function () {
const self = this;
return self.unit($.sum((() => { const $all = [];
for (const $$1 of $.iter(self.terms)) {
let _, term;
[_, term] = $.unpack($$1, 2n, -1n);
$all.push($.int(term));} return $all; })()));
})],
["property", "formula", $.fn([], function () {
const self = this;
return $.dict((() => { const $all = [];
for (const $$2 of $.iter(self.terms)) {
let name, term;
[name, term] = $.unpack($$2, 2n, -1n);
$all.push([name, term.text()]);} return $all; })());
})],
["method", "explain", $.fn([], function () {
const self = this;
return $.dict((() => { const $all = [];
for (const $$3 of $.iter(self.terms)) {
let name, term;
[name, term] = $.unpack($$3, 2n, -1n);
$all.push([name, $.call_method(term, "text", [], {values: true})]);} return $all; })());
})],
["method", "share", $.fn(["name"], function (name) {
const self = this;
return ($.truth(self.total) ? $.div($.int($.item(self, name)), $.int(self.total)) : 0.0);
})],
["method", "__getitem__", $.fn(["name"], function (name) {
const self = this;
let candidate, term;
for (const $$4 of $.iter(self.terms)) {
[candidate, term] = $.unpack($$4, 2n, -1n);
if ($.eq(candidate, name)) {
return self.unit($.int(term));
}
}
throw $.KeyError([$.format(name, "r", ""), " is not a component of ", $.format(self.title, "", ""), "; it has ", $.format($.method(", ", "join")(self), "", "")].join(''));
})],
["method", "__iter__", $.fn([], function () {
const self = this;
return (() => { const $all = [];
for (const $$5 of $.iter(self.terms)) {
let _, name;
[name, _] = $.unpack($$5, 2n, -1n);
$all.push(name);} return $all; })();
})],
["method", "__len__", $.fn([], function () {
const self = this;
return $.len(self.terms);
})],
["method", "__int__", $.fn([], function () {
const self = this;
return $.int(self.total);
})]
]);
const breakdown = $.fn(["title", "unit", "terms", "convention"], function (title, unit, terms, convention) {
return Breakdown(title, unit, $.tuple((() => { const $all = [];
for (const $$6 of $.iter($.method(terms, "items")())) {
let name, term;
[name, term] = $.unpack($$6, 2n, -1n);
$all.push([name, constant(term)]);} return $all; })()), convention);
});
return {Breakdown: () => Breakdown, Count: () => Count, Iterator: () => Iterator, Mapping: () => Mapping, SYMBOLS: () => SYMBOLS, Term: () => Term, breakdown: () => breakdown, constant: () => constant, dataclass: () => dataclass};
});
$.module("accounting.memory.activations", () => {
let Breakdown, Bytes, Component, DEFAULT, Dimensions, FeedForward, FfnDimensions, ForwardPass, Kind, MOST_IN_BLOCKS, OF_FFN_MATRICES, Policy, QUERY_BLOCK, Symbol, Term, TransformerShape, adapted, block_weights, breakdown, no_value_embeddings, positive, rank_of, stack, total_bytes, transformers_blocks;

Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");
OF_FFN_MATRICES = $.from("accounting.counting.adapters", "OF_FFN_MATRICES");
adapted = $.from("accounting.counting.adapters", "adapted");
rank_of = $.from("accounting.counting.adapters", "rank_of");
Dimensions = $.from("accounting.counting.dimensions", "Dimensions");
FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
stack = $.from("accounting.counting.layers", "stack");
block_weights = $.from("accounting.counting.parameters", "block_weights");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
transformers_blocks = $.from("accounting.memory", "transformers_blocks");
Component = $.from("accounting.memory.records", "Component");
total_bytes = $.from("accounting.memory.records", "total_bytes");
DEFAULT = $.from("accounting.policy", "DEFAULT");
Policy = $.from("accounting.policy", "Policy");
FeedForward = $.from("accounting.shape", "FeedForward");
Kind = $.from("accounting.shape", "Kind");
TransformerShape = $.from("accounting.shape", "TransformerShape");
no_value_embeddings = $.from("accounting.shape", "no_value_embeddings");
positive = $.from("accounting.shape", "positive");
Bytes = $.from("accounting.units", "Bytes");
QUERY_BLOCK = 64n;
MOST_IN_BLOCKS = $.shift(1n, 20n);
ForwardPass = $.class("ForwardPass", [], false, [], [
["method", "__init__", $.fn(["shape", "batch_size", "seq_len", "policy", "shards", "context_shards"], function (shape, batch_size, seq_len, policy, shards = 1n, context_shards = 1n) {
const self = this;
let cp, tp;
no_value_embeddings(shape, "the memory of training");
[self.shape, self.policy, self.stack] = $.unpack([shape, policy, stack(shape)], 3n, -1n);
if ($.isnt(shape.lora_rank, null)) {
_only_counted_adapters(shape, policy);
}
self.transformers = $.or($.eq(policy.model_code, "transformers"), () => !$.truth(shape.plain));
if ($.truth(self.transformers)) {
transformers_blocks.only_counted(self);
}
if (($.gt(context_shards, 1n) && $.eq(policy.attention_kernel, "blocks"))) {
throw $.ValueError("attention_kernel 'blocks' is lm's on a CPU, where no sequence is shared: use 'fused'");
}
self.batch = Symbol("batch", positive("batch_size", batch_size));
self.seq = Symbol("seq", shape.sequence(seq_len));
cp = Symbol("cp", context_shards);
self.queries = ($.eq(context_shards, 1n) ? self.seq : $.floordiv($.add(self.seq, $.sub(cp, 1n)), cp));
self.tokens = $.mul(self.batch, self.queries);
self.n = Dimensions(shape);
self.act = Symbol("act_bytes", policy.bytes.activations);
self.residual = Symbol("residual_bytes", policy.bytes.residual);
self.weight = Symbol("weight_bytes", policy.bytes.weights);
self.gradient = Symbol("gradient_bytes", policy.gradient_bytes);
tp = Symbol("tp", shards);
self.between = ($.eq(shards, 1n) ? self.tokens : $.mul(self.batch, $.floordiv($.add(self.queries, $.sub(tp, 1n)), tp)));
})],
["property", "code", $.fn([], function () {
const self = this;
return ["as ", $.format(($.truth(self.transformers) ? "transformers" : "lm"), "", ""), " computes it without dropout"].join('');
})],
["property", "window", $.fn([], function () {
const self = this;
return $.call($.min, [(() => { const $all = [];
for (const $$1 of $.iter($.bound(self, "shape").counts)) {
let kind;
kind = $$1;
if (!($.truth($.bound(kind, "attention").window))) continue;
$all.push($.bound(kind, "attention").window);} return $all; })()], {default: null});
})],
["property", "narrow", $.fn([], function () {
const self = this;
return $.lt(self.policy.bytes.activations, 4n);
})],
["property", "loss_vocab", $.fn([], function () {
const self = this;
let padded;
padded = $.ne($.bound(self, "shape").vocab_rows, $.bound(self, "shape").vocab_size);
return ($.truth(padded) ? Symbol("vocab_unpadded", $.bound(self, "shape").vocab_size) : self.n.vocab);
})],
["property", "head_norm_kernel", $.fn([], function () {
const self = this;
let kernel;
kernel = self.policy.norm_kernel;
return (($.eq(kernel, "normalised") && $.truth(self.narrow)) ? "composite" : kernel);
})]
]);
const _only_counted_adapters = $.fn(["shape", "policy"], function (shape, policy) {
let chosen, counted, name;
for (const $$2 of $.iter([["experts", $.next($.iter(shape.ffns)).experts, [null]], ["loss", policy.loss, ["plain"]], ["precision", policy.precision, ["fp32", "bf16"]], ["norm_kernel", policy.norm_kernel, ["fused", "composite"]], ["gate_kernel", policy.gate_kernel, ["composite"]], ["attention_kernel", policy.attention_kernel, ["fused", "eager"]]])) {
[name, chosen, counted] = $.unpack($$2, 3n, -1n);
if ($.hasnt(chosen, counted)) {
throw $.ValueError(["the memory of training adapters is not counted with ", $.format(name, "", ""), " ", $.format(chosen, "r", ""), ": it is with ", $.format($.method(" and ", "join")($.map($.str, counted)), "", "")].join(''));
}
}
});
const shared_tensors = $.fn(["run"], function (run) {
let ids, tables, window;
[window, tables] = $.unpack([run.window, $.as_list([])], 2n, -1n);
if ($.truth(run.transformers)) {
return $.dict([[Component.TOKEN_IDS, $.as_list([[1n, $.mul(8n, run.tokens)]])], [Component.TABLES, transformers_blocks.tables(run)]]);
}
if ($.eq($.bound(run, "shape").position, "rope")) {
$.method(tables, "append")([1n, $.mul(4n, $.mul(run.n.max_seq, $.bound(run.n, "head_dim")))]);
}
if (($.eq(run.policy.attention_kernel, "fused") && $.isnt(window, null) && $.lt(window, $.int(run.seq)))) {
$.method(tables, "append")([1n, $.mul($.mul(run.queries, run.seq), run.act)]);
}
ids = ($.is($.bound(run, "shape").lora_rank, null) ? $.as_list([[1n, $.mul(8n, run.tokens)]]) : $.as_list([]));
return $.dict([[Component.TOKEN_IDS, ids], [Component.TABLES, tables]]);
});
const saved_by_layers = $.fn(["run", "layers"], function (run, layers) {
let count, found, kind, one, saved;
saved = $.dict([]);
for (const $$3 of $.iter($.method(layers, "items")())) {
[kind, count] = $.unpack($$3, 2n, -1n);
if ((!$.truth(count) && $.gt($.len(layers), 1n))) {
continue;
}
for (const $$4 of $.iter($.method(saved_by_block(run, kind), "items")())) {
[one, found] = $.unpack($$4, 2n, -1n);
$.method($.method(saved, "setdefault")(one, $.as_list([])), "extend")((() => { const $all = [];
for (const $$5 of $.iter(found)) {
let each, size;
[each, size] = $.unpack($$5, 2n, -1n);
$all.push([$.mul(count, each), size]);} return $all; })());
}
}
return saved;
});
const saved_by_block = $.fn(["run", "kind"], function (run, kind) {
let block;
if ($.eq(run.policy.activation_checkpointing, "full")) {
return $.dict([[Component.BLOCK_INPUTS, $.as_list([[1n, $.mul($.mul($.bound(run, "between"), run.n.d_model), run.residual)]])]]);
}
block = block_tensors(run, kind);
if ($.eq(run.policy.activation_checkpointing, "selective")) {
$.del_item(block, Component.ATTENTION_WEIGHTS);
$.set_item(block, Component.QKV, _entering_attention(run, kind));
}
return block;
});
const block_tensors = $.fn(["run", "kind"], function (run, kind) {
let act, ffn_input, hidden, inside, n, norms, outputs, saved, shape, tokens;
[shape, n, act, tokens] = $.unpack([$.bound(run, "shape"), run.n, run.act, run.tokens], 4n, -1n);
norms = shape.norms_of_block;
saved = $.dict([[Component.NORMS, $.as_list((() => { const $all = [];
for (const $$6 of $.iter(norm_tensors(run, $.bound(run, "between"), n.d_model))) {
let count, size;
[count, size] = $.unpack($$6, 2n, -1n);
$all.push([$.mul(norms, count), size]);} return $all; })())], [Component.ATTENTION_INPUT, $.as_list([[1n, $.mul($.mul($.bound(run, "between"), n.d_model), act)]])]]);
ffn_input = $.as_list([[1n, $.mul($.mul($.bound(run, "between"), n.d_model), act)]]);
if ($.truth(run.transformers)) {
saved = $.bitor(saved, transformers_blocks.of_attention(run, kind));
return $.dict([...$.entries(saved), [Component.FFN_INPUT, ffn_input], ...$.entries(transformers_blocks.of_ffn(run, kind))]);
}
if ($.truth(shape.qk_norm)) {
$.set_item(saved, Component.QK_NORMS, _qk_norms(run));
}
$.set_item(saved, Component.QKV, _qkv(run, kind));
$.set_item(saved, Component.ATTENTION_WEIGHTS, _attention_weights(run));
$.set_item(saved, Component.ATTENTION_OUTPUT, $.as_list([[1n, $.mul($.mul($.mul(tokens, n.n_heads), $.bound(n, "head_dim")), act)]]));
$.set_item(saved, Component.FFN_INPUT, ffn_input);
hidden = $.mul($.mul(tokens, FfnDimensions(shape, $.bound(kind, "ffn")).d_ff), act);
outputs = ($.eq(run.policy.gate_kernel, "fused") ? 1n : 2n);
inside = ($.truth(shape.gated) ? $.as_list([[1n, $.mul(2n, hidden)], [outputs, hidden]]) : $.as_list([[2n, hidden]]));
$.set_item(saved, Component.FFN_HIDDEN, $.as_list((() => { const $all = [];
for (const $$7 of $.iter(inside)) {
let count, size;
[count, size] = $.unpack($$7, 2n, -1n);
$all.push([$.mul($.bound(kind, "ffn").active, count), size]);} return $all; })()));
if ($.isnt($.bound(kind, "ffn").experts, null)) {
$.set_item(saved, Component.ROUTER, _router(run, $.bound(kind, "ffn")));
}
if ($.eq(run.policy.precision, "autocast")) {
$.set_item(saved, Component.WEIGHTS_IN_BF16, $.as_list([[1n, $.mul(2n, Symbol("block_weights", block_weights(shape)))]]));
}
return ($.is(shape.lora_rank, null) ? saved : _with_adapters(run, saved));
});
const _with_adapters = $.fn(["run", "saved"], function (run, saved) {
let component, count, found, of_ffn, others, size, targets;
found = $.dict(saved);
targets = $.set(adapted($.bound(run, "shape")));
if (!$.truth($.bitand(targets, $.set(["query", "key", "value", "qkv"])))) {
$.del_item(found, Component.ATTENTION_INPUT);
}
if (($.hasnt("output", targets) && $.eq(run.policy.attention_kernel, "eager"))) {
$.del_item(found, Component.ATTENTION_OUTPUT);
}
if (!$.truth($.bitand(targets, $.set(["gate", "up", "gate_up"])))) {
$.del_item(found, Component.FFN_INPUT);
}
if ($.hasnt("down", targets)) {
[others, [count, size]] = $.unpack($.item(found, Component.FFN_HIDDEN), 2n, 0n);
$.set_item(found, Component.FFN_HIDDEN, $.as_list([...$.iter(others), [$.sub(count, 1n), size]]));
}
for (const $$8 of $.iter([[Component.ADAPTERS_OF_ATTENTION, false], [Component.ADAPTERS_OF_FFN, true]])) {
[component, of_ffn] = $.unpack($$8, 2n, -1n);
count = $.sum((() => { const $all = [];
for (const $$9 of $.iter(targets)) {
let name;
name = $$9;
$all.push($.eq($.has(name, OF_FFN_MATRICES), of_ffn));} return $all; })());
if ($.truth(count)) {
$.set_item(found, component, $.as_list([[count, $.mul($.mul(run.tokens, rank_of($.bound(run, "shape"))), run.act)]]));
}
}
return found;
});
const _router = $.fn(["run", "ffn"], function (run, ffn) {
let act, active, tokens;
[tokens, act, active] = $.unpack([run.tokens, run.act, ffn.active], 3n, -1n);
return $.as_list([[1n, $.mul($.mul(tokens, FfnDimensions($.bound(run, "shape"), ffn).n_experts), act)], [1n, $.mul(tokens, act)], [active, $.mul(8n, tokens)], [active, $.mul(16n, tokens)], [$.mul(2n, active), $.mul(tokens, act)], [$.mul(3n, active), $.mul($.mul(tokens, run.n.d_model), act)]]);
});
const _qk_norms = $.fn(["run"], function (run) {
let copies, n, saved, tokens;
[n, tokens] = $.unpack([run.n, run.tokens], 2n, -1n);
copies = $.item($.dict([["fused", 0n], ["normalised", 1n], ["composite", ($.truth(run.narrow) ? 2n : 1n)]]), run.head_norm_kernel);
if (($.truth(copies) && $.truth(frozen_norms(run)))) {
copies = $.sub(copies, 1n);
}
saved = $.as_list([[1n, $.mul(4n, $.mul(tokens, n.n_heads))], [1n, $.mul(4n, $.mul(tokens, n.n_kv_heads))]]);
if ($.truth(copies)) {
saved = $.iadd(saved, $.as_list([[copies, $.mul(4n, $.mul($.mul(tokens, n.n_heads), $.bound(n, "head_dim")))], [copies, $.mul(4n, $.mul($.mul(tokens, n.n_kv_heads), $.bound(n, "head_dim")))]]));
}
return saved;
});
const _attention_weights = $.fn(["run"], function (run) {
let kernel, n, seen;
[n, kernel] = $.unpack([run.n, run.policy.attention_kernel], 2n, -1n);
if ($.eq(kernel, "blocks")) {
seen = scores_in_blocks($.int(run.seq), run.window);
return $.as_list((() => { const $all = [];
for (const $$10 of $.iter(seen)) {
let scores;
scores = $$10;
$all.push([1n, $.mul($.mul($.mul(run.batch, n.n_heads), Symbol("block_scores", scores)), run.act)]);} return $all; })());
}
if ($.eq(kernel, "eager")) {
return $.as_list([[1n, $.mul($.mul($.mul($.mul(run.batch, n.n_heads), run.queries), run.seq), run.act)]]);
}
return $.as_list([[1n, $.mul(4n, $.mul(run.tokens, n.n_heads))]]);
});
const _entering_attention = $.fn(["run", "kind"], function (run, kind) {
let copies, n;
if ($.truth(run.transformers)) {
return transformers_blocks.entering(run, kind);
}
if ($.ne(run.policy.attention_kernel, "blocks")) {
return _qkv_of_fused(run);
}
n = run.n;
copies = (($.truth($.bound(run, "shape").qk_norm) && $.has(run.policy.norm_kernel, ["fused", "composite"])) ? 2n : 1n);
return $.as_list([[copies, $.mul($.mul(run.tokens, $.mul($.add(n.n_heads, $.mul(2n, n.n_kv_heads)), $.bound(n, "head_dim"))), run.act)]]);
});
const _projected = $.fn(["run"], function (run) {
let n;
n = run.n;
return [1n, $.mul($.mul(run.tokens, $.mul($.add(n.n_heads, $.mul(2n, n.n_kv_heads)), $.bound(n, "head_dim"))), run.act)];
});
const _rotated = $.fn(["run"], function (run) {
let n;
n = run.n;
return [1n, $.mul($.mul(run.tokens, $.mul($.add(n.n_heads, n.n_kv_heads), $.bound(n, "head_dim"))), run.act)];
});
const _qkv_of_fused = $.fn(["run"], function (run) {
let changed;
changed = $.or($.eq($.bound(run, "shape").position, "rope"), () => $.bound(run, "shape").qk_norm);
return ($.truth(changed) ? $.as_list([_projected(run), _rotated(run)]) : $.as_list([_projected(run)]));
});
const _qkv = $.fn(["run", "kind"], function (run, kind) {
let act, copies, kernel, n, of_norm, projected, raw, rotated, shape;
[shape, n, act, kernel] = $.unpack([$.bound(run, "shape"), run.n, run.act, run.policy.norm_kernel], 4n, -1n);
if ($.eq(run.policy.attention_kernel, "fused")) {
return _qkv_of_fused(run);
}
if ($.eq(run.policy.attention_kernel, "blocks")) {
raw = $.and(shape.qk_norm, () => $.has(kernel, ["fused", "composite"]));
return $.as_list([[1n, $.mul($.mul($.mul(run.tokens, n.n_heads), $.bound(n, "head_dim")), act)], [2n, $.mul($.mul($.mul(run.tokens, n.n_kv_heads), $.bound(n, "head_dim")), act)], ...$.iter(($.truth(raw) ? $.as_list([_projected(run)]) : $.as_list([])))]);
}
copies = copies_of_heads(run, kind);
if (($.eq($.int(run.batch), 1n) || $.eq($.bound(shape, "kv_heads"), 1n))) {
[projected, rotated] = $.unpack(_qkv_of_fused(run), 2n, 1n);
if (($.truth(copies) && $.truth(rotated))) {
rotated = $.as_list([[1n, $.mul($.mul(run.tokens, $.mul(n.n_kv_heads, $.bound(n, "head_dim"))), act)]]);
}
return $.as_list([...$.iter(copies), ...$.iter(rotated), projected]);
}
of_norm = $.or($.eq(run.head_norm_kernel, "fused"), () => $.and(!$.truth(run.narrow), () => $.ne(kernel, "normalised")));
return (($.truth(shape.qk_norm) && $.truth(of_norm)) ? $.as_list([...$.iter(copies), _projected(run)]) : copies);
});
const scores_in_blocks = $.fn(["length", "window"], function (length, window) {
if ($.gt(length, MOST_IN_BLOCKS)) {
throw $.ValueError(["attention_kernel 'blocks' is counted block by block to ", $.format(MOST_IN_BLOCKS, "", [","].join('')), " positions, and ", $.format(length, "", [","].join('')), " are more: use 'fused' (lm takes blocks to 256)"].join(''));
}
return $.as_list((() => { const $all = [];
for (const $$11 of $.iter($.range(0n, length, QUERY_BLOCK))) {
let first;
first = $$11;
for (const $$12 of $.iter([$.min($.add(first, QUERY_BLOCK), length)])) {
let last;
last = $$12;
$all.push($.mul($.sub(last, first), $.sub(last, ($.is(window, null) ? 0n : $.max(0n, $.sub($.add(first, 1n), window))))));}} return $all; })());
});
const copies_of_heads = $.fn(["run", "kind"], function (run, kind) {
let kernel, keys_and_values, n, queries;
[n, kernel] = $.unpack([run.n, run.policy.attention_kernel], 2n, -1n);
if ($.truth(run.transformers)) {
return transformers_blocks.repeated(run, kind);
}
queries = [1n, $.mul($.mul(run.tokens, $.mul(n.n_heads, $.bound(n, "head_dim"))), run.act)];
keys_and_values = [2n, $.mul($.mul(run.tokens, $.mul(n.n_kv_heads, $.bound(n, "head_dim"))), run.act)];
if ($.eq(kernel, "blocks")) {
return $.as_list([queries, keys_and_values]);
}
if ($.ne(kernel, "eager")) {
return $.as_list([]);
}
if (($.eq($.int(run.batch), 1n) || $.eq($.bound($.bound(run, "shape"), "kv_heads"), 1n))) {
return (($.eq($.bound($.bound(run, "shape"), "kv_heads"), $.bound(run, "shape").num_heads) || $.eq($.int(run.seq), 1n)) ? $.as_list([]) : $.as_list([queries]));
}
return $.as_list([queries, keys_and_values]);
});
const norm_tensors = $.fn(["run", "tokens", "width"], function (run, tokens, width) {
let copies;
if ($.eq($.bound(run, "shape").norm, "none")) {
return $.as_list([]);
}
if ($.eq($.bound(run, "shape").norm, "layernorm")) {
return $.as_list([[1n, $.mul($.mul(tokens, width), run.residual)], [2n, $.mul(4n, tokens)]]);
}
if ($.eq(run.policy.norm_kernel, "composite")) {
copies = ($.truth(frozen_norms(run)) ? 1n : 2n);
return $.as_list([[copies, $.mul(4n, $.mul(tokens, width))], [1n, $.mul(4n, tokens)]]);
}
return $.as_list([[1n, $.mul($.mul(tokens, width), run.residual)], [1n, $.mul(4n, tokens)]]);
});
const frozen_norms = $.fn(["run"], function (run) {
return $.isnt($.bound(run, "shape").lora_rank, null);
});
const head_tensors = $.fn(["run"], function (run) {
let gradients, n, saved;
n = run.n;
saved = $.dict([[Component.FINAL_NORM, norm_tensors(run, $.bound(run, "between"), n.d_model)]]);
if ($.eq(run.policy.loss, "chunked")) {
gradients = $.as_list([[1n, $.mul($.mul(run.tokens, n.d_model), run.residual)], [1n, $.mul($.mul(n.vocab, n.d_model), run.weight)]]);
return $.dict([...$.entries(saved), [Component.LOSS, gradients]]);
}
if ($.is($.bound(run, "shape").lora_rank, null)) {
$.set_item(saved, Component.HEAD_INPUT, $.as_list([[1n, $.mul($.mul($.bound(run, "between"), n.d_model), run.act)]]));
}
if ($.eq(run.policy.precision, "autocast")) {
$.set_item(saved, Component.HEAD_IN_BF16, $.as_list([[1n, $.mul(2n, $.mul(n.vocab, n.d_model))]]));
}
$.set_item(saved, Component.LOSS, $.as_list([[1n, $.mul(4n, $.mul(run.tokens, run.loss_vocab))], [1n, $.mul(8n, run.tokens)], [1n, Term(4n)]]));
return saved;
});
return {Breakdown: () => Breakdown, Bytes: () => Bytes, Component: () => Component, DEFAULT: () => DEFAULT, Dimensions: () => Dimensions, FeedForward: () => FeedForward, FfnDimensions: () => FfnDimensions, ForwardPass: () => ForwardPass, Kind: () => Kind, MOST_IN_BLOCKS: () => MOST_IN_BLOCKS, OF_FFN_MATRICES: () => OF_FFN_MATRICES, Policy: () => Policy, QUERY_BLOCK: () => QUERY_BLOCK, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, _attention_weights: () => _attention_weights, _entering_attention: () => _entering_attention, _only_counted_adapters: () => _only_counted_adapters, _projected: () => _projected, _qk_norms: () => _qk_norms, _qkv: () => _qkv, _qkv_of_fused: () => _qkv_of_fused, _rotated: () => _rotated, _router: () => _router, _with_adapters: () => _with_adapters, adapted: () => adapted, block_tensors: () => block_tensors, block_weights: () => block_weights, breakdown: () => breakdown, copies_of_heads: () => copies_of_heads, frozen_norms: () => frozen_norms, head_tensors: () => head_tensors, no_value_embeddings: () => no_value_embeddings, norm_tensors: () => norm_tensors, positive: () => positive, rank_of: () => rank_of, saved_by_block: () => saved_by_block, saved_by_layers: () => saved_by_layers, scores_in_blocks: () => scores_in_blocks, shared_tensors: () => shared_tensors, stack: () => stack, total_bytes: () => total_bytes, transformers_blocks: () => transformers_blocks};
});
$.module("accounting.memory.transformers_blocks", () => {
let Attention, Component, DeltaAttention, FeedForward, FfnDimensions, Kind, LatentAttention, LatentDimensions, NotCounted, Term;

FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
LatentDimensions = $.from("accounting.counting.dimensions", "LatentDimensions");
Term = $.from("accounting.formula", "Term");
Component = $.from("accounting.memory.records", "Component");
Attention = $.from("accounting.shape", "Attention");
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
FeedForward = $.from("accounting.shape", "FeedForward");
Kind = $.from("accounting.shape", "Kind");
LatentAttention = $.from("accounting.shape", "LatentAttention");
NotCounted = $.from("accounting.shape", "NotCounted");
const only_counted = $.fn(["run"], function (run) {
let chosen, counted, kind, mistake, name;
for (const $$1 of $.iter([["precision", run.policy.precision, ["fp32", "bf16"]], ["norm_kernel", run.policy.norm_kernel, ["fused", "composite"]], ["gate_kernel", run.policy.gate_kernel, ["composite"]], ["attention_kernel", run.policy.attention_kernel, ["fused", "eager"]], ["norm", $.bound(run, "shape").norm, ["rmsnorm"]], ["post_norm", $.bound(run, "shape").post_norm, [false]], ["block_norms", $.bound(run, "shape").block_norms, [null]], ["embedding_norm", $.bound(run, "shape").embedding_norm, [false]], ["position", $.bound(run, "shape").position, ["rope", "none"]], ["ffn", $.bound($.bound(run, "shape"), "ffn"), ["swiglu", "clamped_swiglu"]], ["lora_rank", $.bound(run, "shape").lora_rank, [null]]])) {
[name, chosen, counted] = $.unpack($$1, 3n, -1n);
if ($.hasnt(chosen, counted)) {
mistake = ($.truth($.hasattr($.bound(run, "shape"), name)) ? NotCounted : $.ValueError);
throw mistake(["the memory of training layers as transformers computes them is not counted with ", $.format(name, "", ""), " ", $.format(chosen, "r", ""), ": it is with ", $.format($.method(" and ", "join")($.map($.str, counted)), "", "")].join(''));
}
}
for (const $$2 of $.iter($.bound(run, "shape").matrix_kinds)) {
kind = $$2;
if (!$.truth(_verified(kind, $.bound(run, "shape").position))) {
throw NotCounted(["the memory of training is counted of models that lm can build and of layers like transformers' of Llama, DeepSeek V3, gpt-oss and Llama 4, not of ", $.format(kind, "", "")].join(''));
}
}
});
const _verified = $.fn(["kind", "position"], function (kind, position) {
let attention, ffn;
[attention, ffn] = $.unpack([$.bound(kind, "attention"), $.bound(kind, "ffn")], 2n, -1n);
if ($.truth($.isinstance(attention, LatentAttention))) {
return $.or($.is(ffn.experts, null), () => $.eq(ffn.router, "sigmoid"));
}
if (($.truth($.isinstance(attention, DeltaAttention)) || $.truth(attention.gated) || $.has(attention.qk_norm, ["head", "width"]))) {
return false;
}
if ($.is(ffn.experts, null)) {
return $.or($.ne(position, "rope"), () => $.bool($.bound(attention, "rotated")));
}
return $.and($.eq(ffn.router, ($.truth(attention.sinks) ? "softmax_of_chosen" : "sigmoid_of_input")), () => !$.truth(ffn.shared_gate));
});
const tables = $.fn(["run"], function (run) {
let n, positions, rotated, shape, width;
[shape, n, positions] = $.unpack([$.bound(run, "shape"), run.n, run.queries], 3n, -1n);
rotated = $.as_list((() => { const $all = [];
for (const $$3 of $.iter(shape.attentions)) {
let one;
one = $$3;
if (!($.truth($.bound(one, "rotated")))) continue;
$all.push(one);} return $all; })());
if (!$.truth(rotated)) {
return $.as_list([]);
}
if ($.isnt(shape.latent, null)) {
return $.as_list([[2n, $.mul($.mul(positions, LatentDimensions(shape.latent).rope_dim), run.act)]]);
}
if (($.truth($.any((() => { const $all = [];
for (const $$4 of $.iter(rotated)) {
let one;
one = $$4;
$all.push($.eq(one.qk_norm, "l2"));} return $all; })())) || $.lt($.len(rotated), $.len(shape.attentions)))) {
return $.as_list([[1n, $.mul(4n, $.mul(positions, $.bound(n, "head_dim")))]]);
}
width = ($.truth($.any((() => { const $all = [];
for (const $$5 of $.iter(rotated)) {
let one;
one = $$5;
$all.push(one.sinks);} return $all; })())) ? $.floordiv($.bound(n, "head_dim"), 2n) : $.bound(n, "head_dim"));
return $.as_list([[2n, $.mul($.mul(positions, width), run.act)]]);
});
const masks = $.fn(["run", "layers", "block"], function (run, layers, block) {
let chunked, kinds, policy, shape;
[shape, policy] = $.unpack([$.bound(run, "shape"), run.policy], 2n, -1n);
if (($.ne(policy.attention_kernel, "eager") || $.eq(policy.activation_checkpointing, "none"))) {
return $.as_list([]);
}
kinds = $.len($.set((() => { const $all = [];
for (const $$6 of $.iter($.method(layers, "items")())) {
let count, kind;
[kind, count] = $.unpack($$6, 2n, -1n);
if (!(($.truth(count) || $.eq(kind, block)))) continue;
$all.push($.bound($.bound(kind, "attention"), "rotated"));} return $all; })()));
chunked = $.any((() => { const $all = [];
for (const $$7 of $.iter(shape.counts)) {
let kind;
kind = $$7;
$all.push($.bound(kind, "attention").chunked);} return $all; })());
if ((!$.truth(chunked) && ($.lt(0n, shape.windowed_layers) && $.lt(shape.windowed_layers, shape.num_layers)) && $.truth($.any($.method(layers, "values")())))) {
kinds = 2n;
}
return $.as_list([[kinds, $.mul($.mul($.mul(run.batch, run.queries), run.seq), run.act)]]);
});
const of_attention = $.fn(["run", "kind"], function (run, kind) {
let attention, eager, saved;
saved = $.dict([]);
attention = $.bound(kind, "attention");
if ($.truth($.isinstance(attention, LatentAttention))) {
$.set_item(saved, Component.LATENTS, _latents(run, attention));
} else {
if ($.eq(attention.qk_norm, "l2")) {
$.set_item(saved, Component.QK_NORMS, _l2_norms(run));
}
}
if (($.eq($.bound(run, "shape").position, "rope") && !$.truth($.bound(attention, "rotated")))) {
$.set_item(saved, Component.QK_SCALES, $.as_list([[1n, $.mul(4n, run.queries)]]));
}
eager = $.eq(run.policy.attention_kernel, "eager");
$.set_item(saved, Component.QKV, ($.truth(eager) ? _eager(run, kind) : entering(run, kind)));
$.set_item(saved, Component.ATTENTION_WEIGHTS, _weights(run, kind));
$.set_item(saved, Component.ATTENTION_OUTPUT, $.as_list([[1n, $.mul($.mul(run.tokens, _value_width(run, kind)), run.act)]]));
return saved;
});
const _value_width = $.fn(["run", "kind"], function (run, kind) {
if ($.truth($.isinstance($.bound(kind, "attention"), LatentAttention))) {
return $.mul(run.n.n_heads, LatentDimensions($.bound(kind, "attention")).value_dim);
}
return $.mul(run.n.n_heads, $.bound(run.n, "head_dim"));
});
const _latents = $.fn(["run", "latent"], function (run, latent) {
let act, between, m, saved;
[m, between, act] = $.unpack([LatentDimensions(latent), $.bound(run, "between"), run.act], 3n, -1n);
saved = $.as_list([]);
if ($.isnt(latent.q_rank, null)) {
saved = $.iadd(saved, $.as_list([...$.iter(_norm(run, m.q_rank, m.q_rank)), [1n, $.mul($.mul(between, m.q_rank), act)]]));
}
return $.as_list([...$.iter(saved), ...$.iter(_norm(run, m.kv_rank, $.add(m.kv_rank, m.rope_dim))), [1n, $.mul($.mul(between, m.kv_rank), act)]]);
});
const _norm = $.fn(["run", "width", "stored"], function (run, width, stored) {
let between, statistic;
between = $.bound(run, "between");
statistic = [1n, $.mul(4n, between)];
if ($.eq(run.policy.norm_kernel, "fused")) {
return $.as_list([[1n, $.mul($.mul(between, stored), run.act)], statistic]);
}
if ($.truth(run.narrow)) {
return $.as_list([[2n, $.mul(4n, $.mul(between, width))], statistic]);
}
return $.as_list([[1n, $.mul(4n, $.mul(between, stored))], [1n, $.mul(4n, $.mul(between, width))], statistic]);
});
const _l2_norms = $.fn(["run"], function (run) {
let found, heads, n;
n = run.n;
found = $.as_list([]);
for (const $$8 of $.iter([n.n_heads, n.n_kv_heads])) {
heads = $$8;
found = $.iadd(found, $.as_list([[1n, $.mul(4n, $.mul($.mul(run.tokens, heads), $.bound(n, "head_dim")))], [1n, $.mul(4n, $.mul(run.tokens, heads))]]));
}
return found;
});
const entering = $.fn(["run", "kind"], function (run, kind) {
let act, m, n, of_query, tokens;
[n, tokens, act] = $.unpack([run.n, run.tokens, run.act], 3n, -1n);
if ($.truth($.isinstance($.bound(kind, "attention"), LatentAttention))) {
m = LatentDimensions($.bound(kind, "attention"));
of_query = $.mul(n.n_heads, $.add(m.nope_dim, m.rope_dim));
return $.as_list([[2n, $.mul($.mul(tokens, of_query), act)], [1n, $.mul($.mul(tokens, $.mul(n.n_heads, $.add(m.nope_dim, m.value_dim))), act)]]);
}
return $.as_list([[1n, $.mul($.mul(tokens, $.mul(n.n_heads, $.bound(n, "head_dim"))), act)], [2n, $.mul($.mul(tokens, $.mul(n.n_kv_heads, $.bound(n, "head_dim"))), act)]]);
});
const _eager = $.fn(["run", "kind"], function (run, kind) {
let _, act, heads, n, one, queries, shape, tokens, values;
[shape, n, tokens, act] = $.unpack([$.bound(run, "shape"), run.n, run.tokens, run.act], 4n, -1n);
one = $.eq($.int(run.batch), 1n);
if ($.truth($.isinstance($.bound(kind, "attention"), LatentAttention))) {
[[_, queries], values] = $.unpack(entering(run, kind), 2n, -1n);
return $.as_list([[2n, queries], ($.truth(one) ? values : [1n, $.mul($.mul(tokens, _value_width(run, kind)), act)])]);
}
heads = (($.lt($.bound(shape, "kv_heads"), shape.num_heads) && !($.truth(one) && $.eq($.bound(shape, "kv_heads"), 1n))) ? n.n_heads : n.n_kv_heads);
return $.as_list([[1n, $.mul($.mul(tokens, $.mul(n.n_heads, $.bound(n, "head_dim"))), act)], [2n, $.mul($.mul(tokens, $.mul(heads, $.bound(n, "head_dim"))), act)]]);
});
const repeated = $.fn(["run", "kind"], function (run, kind) {
let act, shape, tokens;
[shape, tokens, act] = $.unpack([$.bound(run, "shape"), run.tokens, run.act], 3n, -1n);
if ($.ne(run.policy.attention_kernel, "eager")) {
return $.as_list([]);
}
if (($.truth($.isinstance($.bound(kind, "attention"), Attention)) && $.lt($.bound(shape, "kv_heads"), shape.num_heads))) {
return $.slice(_eager(run, kind), 1n, null);
}
return ($.eq($.int(run.batch), 1n) ? $.as_list([]) : $.as_list([[1n, $.mul($.mul(tokens, _value_width(run, kind)), act)]]));
});
const _weights = $.fn(["run", "kind"], function (run, kind) {
let in_fp32, rows, widened;
rows = $.mul(run.tokens, run.n.n_heads);
if ($.eq(run.policy.attention_kernel, "fused")) {
return $.as_list([[1n, $.mul(4n, rows)]]);
}
if ($.truth($.bound(kind, "attention").sinks)) {
return $.as_list([[1n, $.mul($.mul(rows, $.add(run.seq, 1n)), run.act)], [1n, $.mul(8n, rows)]]);
}
widened = $.and(run.narrow, () => $.all((() => { const $all = [];
for (const $$9 of $.iter($.bound(run, "shape").ffns)) {
let one;
one = $$9;
$all.push($.ne(one.router, "sigmoid_of_input"));} return $all; })()));
in_fp32 = ($.truth(widened) ? $.as_list([[1n, $.mul(4n, $.mul(rows, run.seq))]]) : $.as_list([]));
return $.as_list([...$.iter(in_fp32), [1n, $.mul($.mul(rows, run.seq), run.act)]]);
});
const of_ffn = $.fn(["run", "kind"], function (run, kind) {
let ffn, hidden, m, saved, tokens;
[ffn, tokens] = $.unpack([$.bound(kind, "ffn"), run.tokens], 2n, -1n);
m = FfnDimensions($.bound(run, "shape"), ffn);
if ($.is(ffn.experts, null)) {
return $.dict([[Component.FFN_HIDDEN, _hidden(run, $.mul($.mul(tokens, m.d_ff), run.act))]]);
}
hidden = $.call(_hidden, [run, $.mul($.mul(tokens, m.d_ff), run.act)], {in_one: true});
saved = $.dict([[Component.FFN_HIDDEN, $.as_list((() => { const $all = [];
for (const $$10 of $.iter(hidden)) {
let count, size;
[count, size] = $.unpack($$10, 2n, -1n);
$all.push([$.mul(ffn.active, count), size]);} return $all; })())]]);
if ($.isnt(ffn.shared_d_ff, null)) {
$.set_item(saved, Component.SHARED_FFN_HIDDEN, _hidden(run, $.mul($.mul(tokens, m.shared_d_ff), run.act)));
}
return $.dict([...$.entries(saved), [Component.ROUTER, _router(run, ffn)]]);
});
const _hidden = $.fn(["run", "hidden", "in_one"], function (run, hidden, in_one = false) {
let before;
before = ($.truth(in_one) ? $.as_list([[1n, $.mul(2n, hidden)]]) : $.as_list([[2n, hidden]]));
return $.as_list([...$.iter(before), [($.eq($.bound($.bound(run, "shape"), "ffn"), "clamped_swiglu") ? 5n : 2n), hidden]]);
});
const _router = $.fn(["run", "ffn"], function (run, ffn) {
let act, active, copies, n, n_experts, of_experts, tokens;
[n, tokens, act, active] = $.unpack([run.n, run.tokens, run.act, ffn.active], 4n, -1n);
n_experts = FfnDimensions($.bound(run, "shape"), ffn).n_experts;
of_experts = $.as_list([[active, $.mul(16n, tokens)], [$.mul(3n, active), $.mul($.mul(tokens, n.d_model), act)]]);
if ($.eq(ffn.router, "softmax_of_chosen")) {
return $.as_list([[active, $.mul(8n, tokens)], [$.mul(2n, active), $.mul(tokens, act)], ...$.iter(of_experts)]);
}
if ($.eq(ffn.router, "sigmoid")) {
copies = ($.truth(run.narrow) ? $.as_list([[1n, $.mul(4n, $.mul(tokens, n.d_model))], [1n, $.mul(4n, $.mul(n_experts, n.d_model))]]) : $.as_list([]));
return $.as_list([...$.iter(copies), [1n, $.mul(4n, $.mul(tokens, n_experts))], [active, $.mul(8n, tokens)], [$.mul(2n, active), $.mul(4n, tokens)], [1n, $.mul(4n, tokens)], ...$.iter(of_experts)]);
}
return $.as_list([[active, $.mul(8n, tokens)], [$.mul(2n, active), $.mul(4n, tokens)], ...$.iter(of_experts)]);
});
return {Attention: () => Attention, Component: () => Component, DeltaAttention: () => DeltaAttention, FeedForward: () => FeedForward, FfnDimensions: () => FfnDimensions, Kind: () => Kind, LatentAttention: () => LatentAttention, LatentDimensions: () => LatentDimensions, NotCounted: () => NotCounted, Term: () => Term, _eager: () => _eager, _hidden: () => _hidden, _l2_norms: () => _l2_norms, _latents: () => _latents, _norm: () => _norm, _router: () => _router, _value_width: () => _value_width, _verified: () => _verified, _weights: () => _weights, entering: () => entering, masks: () => masks, of_attention: () => of_attention, of_ffn: () => of_ffn, only_counted: () => only_counted, repeated: () => repeated, tables: () => tables};
});
$.module("accounting.counting.dimensions", () => {
let Attention, DeltaAttention, DeltaDimensions, Dimensions, FeedForward, FfnDimensions, LatentAttention, LatentDimensions, Symbol, Term, TransformerShape;

Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
Attention = $.from("accounting.shape", "Attention");
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
FeedForward = $.from("accounting.shape", "FeedForward");
LatentAttention = $.from("accounting.shape", "LatentAttention");
TransformerShape = $.from("accounting.shape", "TransformerShape");
Dimensions = $.class("Dimensions", [], false, [], [
["method", "__init__", $.fn(["shape"], function (shape) {
const self = this;
self.vocab = Symbol("vocab", shape.vocab_rows);
self.max_seq = Symbol("max_seq", $.add(shape.context_length, shape.extra_positions));
self.n_layers = Symbol("n_layers", shape.num_layers);
self.d_model = Symbol("d_model", shape.d_model);
self.n_heads = Symbol("n_heads", shape.num_heads);
self.n_kv_heads = Symbol("n_kv_heads", $.bound(shape, "kv_heads"));
self.head_dim = Symbol("head_dim", shape.head_width);
})]
]);
LatentDimensions = $.class("LatentDimensions", [], false, [], [
["method", "__init__", $.fn(["latent"], function (latent) {
const self = this;
self.q_rank = Symbol("q_rank", $.or(latent.q_rank, () => 0n));
self.kv_rank = Symbol("kv_rank", latent.kv_rank);
self.nope_dim = Symbol("nope_dim", latent.nope_dim);
self.rope_dim = Symbol("rope_dim", latent.rope_dim);
self.value_dim = Symbol("value_dim", latent.value_dim);
})]
]);
DeltaDimensions = $.class("DeltaDimensions", [], false, [], [
["method", "__init__", $.fn(["delta"], function (delta) {
const self = this;
self.key_heads = Symbol("key_heads", delta.key_heads);
self.value_heads = Symbol("value_heads", delta.value_heads);
self.key_dim = Symbol("key_dim", delta.key_dim);
self.value_dim = Symbol("value_dim", delta.value_dim);
self.kernel = Symbol("kernel", delta.kernel);
self.keys = $.mul(self.key_heads, self.key_dim);
self.values = $.mul(self.value_heads, self.value_dim);
})]
]);
FfnDimensions = $.class("FfnDimensions", [], false, [], [
["method", "__init__", $.fn(["shape", "ffn"], function (shape, ffn) {
const self = this;
let beside_experts;
beside_experts = $.and($.is(ffn.experts, null), () => $.gt($.len(shape.ffns), 1n));
self.d_ff = Symbol(($.truth(beside_experts) ? "dense_d_ff" : "d_ff"), $.or(ffn.d_ff, () => shape.d_ff));
self.n_experts = Symbol("n_experts", $.or(ffn.experts, () => 1n));
self.held_experts = Symbol(($.is(ffn.experts_held, null) ? "n_experts" : "held_experts"), ffn.held);
self.active_experts = Symbol("active_experts", ffn.active);
self.shared_d_ff = Symbol("shared_d_ff", $.or(ffn.shared_d_ff, () => 0n));
})]
]);
const attention_matrices = $.fn(["shape", "attention"], function (shape, attention) {
let gate, keys, m, n, queries, s, sizes;
n = Dimensions(shape);
if ($.truth($.isinstance(attention, LatentAttention))) {
m = LatentDimensions(attention);
queries = $.mul(n.n_heads, $.add(m.nope_dim, m.rope_dim));
sizes = $.dict([["query", $.mul(n.d_model, queries)]]);
if ($.isnt(attention.q_rank, null)) {
sizes = $.dict([["query down", $.mul(n.d_model, m.q_rank)], ["query up", $.mul(m.q_rank, queries)]]);
}
return $.bitor(sizes, $.dict([["key and value down", $.mul(n.d_model, $.add(m.kv_rank, m.rope_dim))], ["key and value up", $.mul(m.kv_rank, $.mul(n.n_heads, $.add(m.nope_dim, m.value_dim)))], ["output", $.mul($.mul(n.n_heads, m.value_dim), n.d_model)]]));
}
if ($.truth($.isinstance(attention, DeltaAttention))) {
s = DeltaDimensions(attention);
return $.dict([["query, key, value, gate", $.mul(n.d_model, $.add($.mul(2n, s.keys), $.mul(2n, s.values)))], ["decay and strength", $.mul(n.d_model, $.mul(2n, s.value_heads))], ["output", $.mul(s.values, n.d_model)]]);
}
[queries, keys] = $.unpack([$.mul($.mul(n.d_model, n.n_heads), $.bound(n, "head_dim")), $.mul($.mul(n.d_model, n.n_kv_heads), $.bound(n, "head_dim"))], 2n, -1n);
gate = ($.truth(attention.gated) ? $.dict([["attention gate", queries]]) : $.dict([]));
return $.dict([["query", queries], ...$.entries(gate), ["key", keys], ["value", keys], ["output", queries]]);
});
const small_tensors = $.fn(["shape", "attention"], function (shape, attention) {
let biases, convolution, heads, keys, m, n, norms, ranks, s;
n = Dimensions(shape);
biases = ($.truth(shape.biased_output) ? $.as_list([n.d_model]) : $.as_list([]));
if ($.truth($.isinstance(attention, LatentAttention))) {
m = LatentDimensions(attention);
ranks = ($.isnt(attention.q_rank, null) ? $.as_list([m.q_rank]) : $.as_list([]));
if ($.truth(shape.biased_qkv)) {
biases = $.iadd(biases, $.as_list([...$.iter(ranks), $.add(m.kv_rank, m.rope_dim)]));
}
return $.dict([["others", biases], ["norms", $.as_list([...$.iter(ranks), m.kv_rank])]]);
}
if ($.truth($.isinstance(attention, DeltaAttention))) {
s = DeltaDimensions(attention);
convolution = $.mul($.add($.mul(2n, s.keys), s.values), s.kernel);
return $.dict([["others", $.as_list([convolution, s.value_heads, s.value_heads])], ["norms", $.as_list([s.value_dim])]]);
}
[heads, keys] = $.unpack([$.mul(n.n_heads, $.bound(n, "head_dim")), $.mul(n.n_kv_heads, $.bound(n, "head_dim"))], 2n, -1n);
if (($.truth(shape.biased_qkv) && $.truth(shape.plain))) {
$.method(biases, "insert")(0n, $.mul($.bound(n, "head_dim"), $.add(n.n_heads, $.mul(2n, n.n_kv_heads))));
} else {
if ($.truth(shape.biased_qkv)) {
biases = $.as_list([($.truth(attention.gated) ? $.mul(2n, heads) : heads), keys, keys, ...$.iter(biases)]);
}
}
if ($.truth(attention.sinks)) {
$.method(biases, "insert")(0n, n.n_heads);
}
norms = $.method($.dict([["head", $.as_list([$.bound(n, "head_dim"), $.bound(n, "head_dim")])], ["width", $.as_list([heads, keys])]]), "get")($.or(attention.qk_norm, () => "none"), $.as_list([]));
return $.dict([["others", biases], ["norms", norms]]);
});
return {Attention: () => Attention, DeltaAttention: () => DeltaAttention, DeltaDimensions: () => DeltaDimensions, Dimensions: () => Dimensions, FeedForward: () => FeedForward, FfnDimensions: () => FfnDimensions, LatentAttention: () => LatentAttention, LatentDimensions: () => LatentDimensions, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, attention_matrices: () => attention_matrices, small_tensors: () => small_tensors};
});
$.module("accounting.memory", () => {

return {};
});
$.module("accounting.counting.parameters", () => {
let Attention, Breakdown, Dimensions, FeedForward, FfnDimensions, Kind, Parameters, Symbol, Term, TransformerShape, adapter_elements, adapter_tensors, added, attention_groups, attention_matrices, breakdown, ffn_layers, layer_matrices, lru_cache, no_value_embeddings, small_tensors, stack;

lru_cache = $.libraries.functools.lru_cache;
Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");
adapter_elements = $.from("accounting.counting.adapters", "adapter_elements");
adapter_tensors = $.from("accounting.counting.adapters", "adapter_tensors");
Dimensions = $.from("accounting.counting.dimensions", "Dimensions");
FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
attention_matrices = $.from("accounting.counting.dimensions", "attention_matrices");
small_tensors = $.from("accounting.counting.dimensions", "small_tensors");
attention_groups = $.from("accounting.counting.layers", "attention_groups");
ffn_layers = $.from("accounting.counting.layers", "ffn_layers");
layer_matrices = $.from("accounting.counting.layers", "layer_matrices");
stack = $.from("accounting.counting.layers", "stack");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
Attention = $.from("accounting.shape", "Attention");
FeedForward = $.from("accounting.shape", "FeedForward");
Kind = $.from("accounting.shape", "Kind");
TransformerShape = $.from("accounting.shape", "TransformerShape");
no_value_embeddings = $.from("accounting.shape", "no_value_embeddings");
Parameters = $.from("accounting.units", "Parameters");
const parameters = $.fn(["shape", "active"], function (shape, active = false) {
let attention, ffn, layers, layers_of, n, norms, one, router, sizes;
n = Dimensions(shape);
attention = added((() => { const $all = [];
for (const $$1 of $.iter($.method(attention_groups(shape), "items")())) {
let layers, one;
[one, layers] = $.unpack($$1, 2n, -1n);
$all.push($.mul(layers, added($.as_list([_attention_elements(shape, one), ...$.iter($.item(small_tensors(shape, one), "others"))]))));} return $all; })());
layers_of = ffn_layers(shape);
ffn = added((() => { const $all = [];
for (const $$2 of $.iter($.method(layers_of, "items")())) {
let layers, one;
[one, layers] = $.unpack($$2, 2n, -1n);
$all.push($.mul(layers, _ffn_elements(shape, one, active)));} return $all; })());
router = added((() => { const $all = [];
for (const $$3 of $.iter($.method(layers_of, "items")())) {
let layers, one;
[one, layers] = $.unpack($$3, 2n, -1n);
for (const $$4 of $.iter(_router_sizes(shape, one))) {
let size;
size = $$4;
$all.push($.mul(layers, size));}} return $all; })());
norms = $.mul($.bound(shape, "norms"), ($.truth(shape.biased_norm) ? $.mul(2n, n.d_model) : n.d_model));
for (const $$5 of $.iter($.method(attention_groups(shape), "items")())) {
[one, layers] = $.unpack($$5, 2n, -1n);
if ($.truth((sizes = $.item(small_tensors(shape, one), "norms")))) {
norms = $.add(norms, $.mul(layers, ($.truth(_equal(sizes)) ? $.mul(2n, $.item(sizes, 0n)) : added(sizes))));
}
}
return breakdown($.add("parameters", ($.truth(active) ? " (active)" : "")), Parameters, $.dict([["embedding", $.mul(n.vocab, n.d_model)], ["positions", ($.eq(shape.position, "learned") ? $.mul(n.max_seq, n.d_model) : 0n)], ["attention", attention], ...$.entries(value_embeddings(shape)), ["ffn", ffn], ["router", router], ["norms", norms], ["head", ($.truth(shape.tied_embeddings) ? 0n : $.mul(n.vocab, n.d_model))], ...$.entries(_adapters(shape, active))]), $.add("every trainable element once: ", ($.truth(shape.tied_embeddings) ? "the tied head is the embedding and counts nothing" : "the head is its own matrix")));
});
const _equal = $.fn(["sizes"], function (sizes) {
return $.and($.eq($.len(sizes), 2n), () => $.eq($.item(sizes, 0n).text(), $.item(sizes, 1n).text()));
});
const _attention_elements = $.fn(["shape", "attention"], function (shape, attention) {
let n, queries;
n = Dimensions(shape);
if ($.truth($.isinstance(attention, Attention))) {
queries = ($.truth(attention.gated) ? $.mul(2n, n.n_heads) : n.n_heads);
return $.add($.mul($.mul(n.d_model, $.bound(n, "head_dim")), $.add(queries, $.mul(2n, n.n_kv_heads))), $.mul($.mul(n.n_heads, $.bound(n, "head_dim")), n.d_model));
}
return added($.method(attention_matrices(shape, attention), "values")());
});
const _ffn_elements = $.fn(["shape", "ffn", "active"], function (shape, ffn, active) {
let m, total;
m = FfnDimensions(shape, ffn);
total = _one_ffn(shape, m.d_ff);
if ($.isnt(ffn.experts, null)) {
total = $.mul(($.truth(active) ? m.active_experts : m.held_experts), total);
}
if ($.isnt(ffn.shared_d_ff, null)) {
total = $.add(total, _one_ffn(shape, m.shared_d_ff));
}
return ($.truth(ffn.shared_gate) ? $.add(total, Dimensions(shape).d_model) : total);
});
const _one_ffn = $.fn(["shape", "width"], function (shape, width) {
let elements, matrices, n;
[n, matrices] = $.unpack([Dimensions(shape), shape.matrices_of_ffn], 2n, -1n);
elements = $.mul($.mul(matrices, n.d_model), width);
return ($.truth(shape.biased_ffn) ? $.add($.add(elements, $.mul($.sub(matrices, 1n), width)), n.d_model) : elements);
});
const _router_sizes = $.fn(["shape", "ffn"], function (shape, ffn) {
let experts;
if ($.is(ffn.experts, null)) {
return $.as_list([]);
}
experts = FfnDimensions(shape, ffn).n_experts;
return $.as_list([$.mul(Dimensions(shape).d_model, experts), ...$.iter(($.truth(ffn.router_bias) ? $.as_list([experts]) : $.as_list([])))]);
});
const value_embeddings = $.fn(["shape"], function (shape) {
let layers, n;
if (!$.truth(shape.value_embeddings)) {
return $.dict([]);
}
n = Dimensions(shape);
layers = Symbol("value_layers", shape.value_embeddings);
return $.dict([["value embeddings", $.mul($.mul(layers, n.n_kv_heads), $.add($.mul(n.vocab, $.bound(n, "head_dim")), n.d_model))]]);
});
const _adapters = $.fn(["shape", "active"], function (shape, active) {
let ffn;
if ($.is(shape.lora_rank, null)) {
return $.dict([]);
}
[ffn] = $.unpack(shape.ffns, 1n, -1n);
return $.dict([["adapters", $.mul(Dimensions(shape).n_layers, adapter_elements(shape, ($.truth(active) ? ffn.active : ffn.held)))]]);
});
const trained_parameters = $.fn(["shape"], function (shape) {
let counted;
counted = parameters(shape);
return $.int(($.is(shape.lora_rank, null) ? counted.total : $.item(counted, "adapters")));
});
const trained_symbol = $.fn(["shape"], function (shape) {
return Symbol(($.is(shape.lora_rank, null) ? "n_params" : "adapter_params"), trained_parameters(shape));
});
const block_parameters = $.fn(["shape", "kind"], function (shape, kind) {
let attention;
attention = $.add(_attention_elements(shape, $.bound(kind, "attention")), $.sum($.item(small_tensors(shape, $.bound(kind, "attention")), "others")));
return [$.int(attention), $.add($.int(_ffn_elements(shape, $.bound(kind, "ffn"), false)), $.sum(_router_sizes(shape, $.bound(kind, "ffn"))))];
});
const expert_parameters = $.fn(["shape"], function (shape) {
return $.sum((() => { const $all = [];
for (const $$6 of $.iter($.method(shape.ffns, "items")())) {
let count, one;
[one, count] = $.unpack($$6, 2n, -1n);
if (!($.truth(one.experts))) continue;
$all.push($.mul($.mul(count, one.held), expert_elements(shape, one)));} return $all; })());
});
const expert_elements = $.fn(["shape", "ffn"], function (shape, ffn) {
return $.int(_one_ffn(shape, FfnDimensions(shape, ffn).d_ff));
});
const expert_matrices = $.fn(["shape", "ffn"], function (shape, ffn) {
return $.mul($.mul(shape.matrices_of_ffn, shape.d_model), $.or(ffn.d_ff, () => shape.d_ff));
});
const matrices = $.fn(["shape"], function (shape) {
let columns, count, counts, key, kind, layers, rows;
no_value_embeddings(shape, "each tensor of the parameters");
counts = $.dict([]);
for (const $$7 of $.iter($.method(stack(shape).counts, "items")())) {
[kind, layers] = $.unpack($$7, 2n, -1n);
for (const $$8 of $.iter(layer_matrices(shape, kind))) {
[rows, columns, count] = $.unpack($$8, 3n, -1n);
key = [$.min(rows, columns), $.max(rows, columns)];
$.set_item(counts, key, $.add($.method(counts, "get")(key, 0n), $.mul(count, $.int(layers))));
}
}
return counts;
});
const block_weights = $.fn(["shape"], function (shape) {
return $.floordiv($.sum((() => { const $all = [];
for (const $$9 of $.iter($.method(matrices(shape), "items")())) {
let columns, count, rows;
[[rows, columns], count] = $.unpack($$9, 2n, -1n);
$all.push($.mul($.mul(rows, columns), count));} return $all; })()), shape.num_layers);
});
const other_tensors = $.fn(["shape"], function (shape) {
let attention, count, d, ffn, gates, layers, merged, sizes, small;
d = shape.d_model;
sizes = $.as_list([[($.truth(shape.tied_embeddings) ? 1n : 2n), $.mul(shape.vocab_rows, d)]]);
if ($.eq(shape.position, "learned")) {
$.method(sizes, "append")([1n, $.mul($.int(Dimensions(shape).max_seq), d)]);
}
for (const $$10 of $.iter($.method(attention_groups(shape), "items")())) {
[attention, layers] = $.unpack($$10, 2n, -1n);
small = small_tensors(shape, attention);
sizes = $.iadd(sizes, $.as_list((() => { const $all = [];
for (const $$11 of $.iter([...$.iter($.item(small, "others")), ...$.iter($.item(small, "norms"))])) {
let size;
size = $$11;
$all.push([$.int(layers), $.int(size)]);} return $all; })()));
}
for (const $$12 of $.iter($.method(shape.ffns, "items")())) {
[ffn, count] = $.unpack($$12, 2n, -1n);
gates = $.sub(shape.matrices_of_ffn, 1n);
merged = (($.truth(shape.plain) || $.isnt(ffn.experts, null)) ? gates : 1n);
if ($.truth(shape.biased_ffn)) {
sizes = $.iadd(sizes, $.as_list([[$.floordiv($.mul($.mul(count, ffn.held), gates), merged), $.mul(merged, $.or(ffn.d_ff, () => 0n))], [$.mul(count, ffn.held), d]]));
if ($.isnt(ffn.shared_d_ff, null)) {
sizes = $.iadd(sizes, $.as_list([[$.mul(count, gates), ffn.shared_d_ff], [count, d]]));
}
}
if ($.truth(ffn.router_bias)) {
$.method(sizes, "append")([count, $.or(ffn.experts, () => 0n)]);
}
}
if ($.truth($.bound(shape, "norms"))) {
$.method(sizes, "append")([$.mul($.bound(shape, "norms"), ($.truth(shape.biased_norm) ? 2n : 1n)), d]);
}
return sizes;
});
const tensors = $.fn(["shape"], function (shape) {
let inside;
inside = $.as_list((() => { const $all = [];
for (const $$13 of $.iter($.method(matrices(shape), "items")())) {
let columns, count, rows;
[[rows, columns], count] = $.unpack($$13, 2n, -1n);
$all.push([count, $.mul(rows, columns)]);} return $all; })());
return $.add($.add(inside, other_tensors(shape)), adapter_tensors(shape));
});
const trained_tensors = $.fn(["shape"], function (shape) {
return ($.is(shape.lora_rank, null) ? tensors(shape) : adapter_tensors(shape));
});
return {Attention: () => Attention, Breakdown: () => Breakdown, Dimensions: () => Dimensions, FeedForward: () => FeedForward, FfnDimensions: () => FfnDimensions, Kind: () => Kind, Parameters: () => Parameters, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, _adapters: () => _adapters, _attention_elements: () => _attention_elements, _equal: () => _equal, _ffn_elements: () => _ffn_elements, _one_ffn: () => _one_ffn, _router_sizes: () => _router_sizes, adapter_elements: () => adapter_elements, adapter_tensors: () => adapter_tensors, added: () => added, attention_groups: () => attention_groups, attention_matrices: () => attention_matrices, block_parameters: () => block_parameters, block_weights: () => block_weights, breakdown: () => breakdown, expert_elements: () => expert_elements, expert_matrices: () => expert_matrices, expert_parameters: () => expert_parameters, ffn_layers: () => ffn_layers, layer_matrices: () => layer_matrices, lru_cache: () => lru_cache, matrices: () => matrices, no_value_embeddings: () => no_value_embeddings, other_tensors: () => other_tensors, parameters: () => parameters, small_tensors: () => small_tensors, stack: () => stack, tensors: () => tensors, trained_parameters: () => trained_parameters, trained_symbol: () => trained_symbol, trained_tensors: () => trained_tensors, value_embeddings: () => value_embeddings};
});
$.module("accounting.counting.layers", () => {
let Attention, DeltaAttention, FeedForward, Kind, LatentAttention, Stack, Symbol, Term, TransformerShape, dataclass, lru_cache, without_window;

dataclass = $.libraries.dataclasses.dataclass;
lru_cache = $.libraries.functools.lru_cache;
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
Attention = $.from("accounting.shape", "Attention");
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
FeedForward = $.from("accounting.shape", "FeedForward");
Kind = $.from("accounting.shape", "Kind");
LatentAttention = $.from("accounting.shape", "LatentAttention");
TransformerShape = $.from("accounting.shape", "TransformerShape");
without_window = $.from("accounting.shape", "without_window");
Stack = $.class("Stack", [], true, [["counts", undefined, false], ["names", undefined, false], ["ends", undefined, false]], [

]);
const stack = $.fn(["shape"], function (shape) {
let count, counts, depth, ends, from_top, highest, kind, layers, lowest, names, period, places;
[layers, period] = $.unpack([shape.num_layers, $.add($.len(shape.leading), $.len(shape.layers))], 2n, -1n);
if ($.eq($.len(shape.matrix_kinds), 1n)) {
[[kind, count]] = $.unpack($.method(shape.matrix_kinds, "items")(), 1n, -1n);
depth = Symbol("n_layers", count);
return Stack($.dict([[kind, depth]]), $.dict([[kind, ""]]), [["last", kind, $.dict([[kind, $.sub(depth, 1n)]])], ["first", kind, $.dict([[kind, Term(0n)]])]]);
}
lowest = $.dict((() => { const $all = [];
for (const $$1 of $.iter($.reversed($.range($.min(layers, period))))) {
let at;
at = $$1;
$all.push([without_window(shape.kind_at(at)), at]);} return $all; })());
places = $.as_list([...$.iter($.range($.min(layers, $.len(shape.leading)))), ...$.iter($.range($.max($.len(shape.leading), $.sub(layers, period)), layers))]);
highest = $.dict((() => { const $all = [];
for (const $$2 of $.iter(places)) {
let at;
at = $$2;
$all.push([without_window(shape.kind_at(at)), at]);} return $all; })());
from_top = $.call($.sorted, [highest], {key: ((kind) => $.negative($.item(highest, kind)))});
names = _names(shape);
counts = $.dict((() => { const $all = [];
for (const $$3 of $.iter(from_top)) {
let kind;
kind = $$3;
$all.push([kind, Symbol($.method("_", "join")($.as_list([...$.iter($.method($.item(names, kind), "split")()), "layers"])), $.item(shape.matrix_kinds, kind))]);} return $all; })());
ends = $.add($.as_list((() => { const $all = [];
for (const $$4 of $.iter($.method(highest, "items")())) {
let at, kind;
[kind, at] = $.unpack($$4, 2n, -1n);
$all.push([at, "last", kind]);} return $all; })()), $.as_list((() => { const $all = [];
for (const $$5 of $.iter($.method(lowest, "items")())) {
let at, kind;
[kind, at] = $.unpack($$5, 2n, -1n);
$all.push([at, "first", kind]);} return $all; })()));
return Stack(counts, names, $.tuple((() => { const $all = [];
for (const $$6 of $.iter($.call($.sorted, [ends], {key: ((end) => $.negative($.item(end, 0n)))}))) {
let at, kind, name;
[at, name, kind] = $.unpack($$6, 3n, -1n);
$all.push([[$.format(name, "", ""), " ", $.format($.item(names, kind), "", "")].join(''), kind, _below(shape, counts, at)]);} return $all; })()));
});
const _below = $.fn(["shape", "counts", "depth"], function (shape, counts, depth) {
let below, kind, number;
below = $.method($.dict, "fromkeys")(counts, 0n);
for (const $$7 of $.iter($.method(shape.counts_below(depth), "items")())) {
[kind, number] = $.unpack($$7, 2n, -1n);
$.set_item(below, without_window(kind), $.iadd($.item(below, without_window(kind)), number));
}
return $.dict((() => { const $all = [];
for (const $$8 of $.iter($.method(counts, "items")())) {
let count, kind;
[kind, count] = $.unpack($$8, 2n, -1n);
$all.push([kind, ($.truth($.item(below, kind)) ? $.sub(count, $.sub($.int(count), $.item(below, kind))) : Term(0n))]);} return $all; })());
});
const _names = $.fn(["shape"], function (shape) {
let kind, name, names, words;
names = $.dict([]);
for (const $$9 of $.iter(shape.matrix_kinds)) {
kind = $$9;
words = ($.gt($.len(shape.ffns), 1n) ? $.as_list([ffn_name(shape, $.bound(kind, "ffn"))]) : $.as_list([]));
if ($.gt($.len(attention_groups(shape)), 1n)) {
$.method(words, "append")(attention_name($.bound(kind, "attention")));
} else {
if ($.gt($.len($.set((() => { const $all = [];
for (const $$10 of $.iter(shape.matrix_kinds)) {
let one;
one = $$10;
$all.push($.bound($.bound(one, "attention"), "rotated"));} return $all; })())), 1n)) {
$.method(words, "append")(($.truth($.bound($.bound(kind, "attention"), "rotated")) ? "rotated" : "unrotated"));
}
}
name = $.method(" ", "join")(words);
$.set_item(names, kind, ($.hasnt(name, $.method(names, "values")()) ? name : $.method([$.format(name, "", ""), " ", $.format($.add($.len(names), 1n), "", "")].join(''), "strip")()));
}
return names;
});
const ffn_name = $.fn(["shape", "ffn"], function (shape, ffn) {
let alike, number;
alike = $.as_list((() => { const $all = [];
for (const $$11 of $.iter(shape.ffns)) {
let one;
one = $$11;
if (!($.eq($.is(one.experts, null), $.is(ffn.experts, null)))) continue;
$all.push(one);} return $all; })());
number = ($.truth($.method(alike, "index")(ffn)) ? [$.format($.add($.method(alike, "index")(ffn), 1n), "", "")].join('') : "");
return $.add(($.is(ffn.experts, null) ? "dense" : "expert"), number);
});
const attention_name = $.fn(["attention"], function (attention) {
return $.item($.dict([[DeltaAttention, "delta"], [LatentAttention, "latent"], [Attention, "softmax"]]), $.type(attention));
});
const attention_groups = $.fn(["shape"], function (shape) {
let attention, count, counts, key, norm;
counts = $.dict([]);
for (const $$12 of $.iter($.method(shape.attentions, "items")())) {
[attention, count] = $.unpack($$12, 2n, -1n);
key = attention;
if ($.truth($.isinstance(attention, Attention))) {
norm = ($.eq(attention.qk_norm, "l2") ? "none" : attention.qk_norm);
key = $.call(Attention, [], {rotated: false, qk_norm: norm, sinks: attention.sinks, gated: attention.gated});
}
$.set_item(counts, key, $.add($.method(counts, "get")(key, 0n), count));
}
if ($.eq($.len(counts), 1n)) {
return $.dict((() => { const $all = [];
for (const $$13 of $.iter($.method(counts, "items")())) {
let count, key;
[key, count] = $.unpack($$13, 2n, -1n);
$all.push([key, Symbol("n_layers", count)]);} return $all; })());
}
return $.dict((() => { const $all = [];
for (const $$14 of $.iter($.method(counts, "items")())) {
let count, key;
[key, count] = $.unpack($$14, 2n, -1n);
$all.push([key, Symbol([$.format(attention_name(key), "", ""), "_layers"].join(''), count)]);} return $all; })());
});
const ffn_layers = $.fn(["shape"], function (shape) {
let order;
if ($.eq($.len(shape.ffns), 1n)) {
return $.dict((() => { const $all = [];
for (const $$15 of $.iter($.method(shape.ffns, "items")())) {
let count, ffn;
[ffn, count] = $.unpack($$15, 2n, -1n);
$all.push([ffn, Symbol("n_layers", count)]);} return $all; })());
}
order = $.call($.sorted, [shape.ffns], {key: ((ffn) => $.is(ffn.experts, null))});
return $.dict((() => { const $all = [];
for (const $$16 of $.iter(order)) {
let ffn;
ffn = $$16;
$all.push([ffn, Symbol([$.format(ffn_name(shape, ffn), "", ""), "_layers"].join(''), $.item(shape.ffns, ffn))]);} return $all; })());
});
const layer_matrices = $.fn(["shape", "kind"], function (shape, kind) {
let d, e, f, ffn, gates, keys, one, sizes, values, wide;
[d, e, f, ffn] = $.unpack([shape.d_model, shape.head_width, kind.d_ff, $.bound(kind, "ffn")], 4n, -1n);
gates = ($.truth(shape.gated) ? 2n : 1n);
if ($.truth(shape.plain)) {
sizes = $.as_list([[d, $.mul($.add(shape.num_heads, $.mul(2n, $.bound(shape, "kv_heads"))), e), 1n], [$.mul(shape.num_heads, e), d, 1n]]);
} else {
if ($.truth($.isinstance($.bound(kind, "attention"), LatentAttention))) {
sizes = _latent_matrices(shape, $.bound(kind, "attention"));
} else {
if ($.truth($.isinstance($.bound(kind, "attention"), DeltaAttention))) {
one = $.bound(kind, "attention");
[keys, values] = $.unpack([$.mul(one.key_heads, one.key_dim), $.mul(one.value_heads, one.value_dim)], 2n, -1n);
sizes = $.as_list([[d, $.add($.mul(2n, keys), $.mul(2n, values)), 1n], [d, $.mul(2n, one.value_heads), 1n], [values, d, 1n]]);
} else {
wide = ($.truth($.bound(kind, "attention").gated) ? 2n : 1n);
sizes = $.as_list([[d, $.mul($.mul(wide, shape.num_heads), e), 1n], [d, $.mul($.bound(shape, "kv_heads"), e), 2n], [$.mul(shape.num_heads, e), d, 1n]]);
}
}
}
if (($.is(ffn.experts, null) && !$.truth(shape.plain))) {
return $.as_list([...$.iter(sizes), [d, f, gates], [f, d, 1n]]);
}
sizes = $.iadd(sizes, $.as_list([[d, $.mul(gates, f), ffn.held], [f, d, ffn.held]]));
if ($.isnt(ffn.experts, null)) {
$.method(sizes, "append")([d, ffn.experts, 1n]);
}
if ($.isnt(ffn.shared_d_ff, null)) {
sizes = $.iadd(sizes, $.as_list([[d, ffn.shared_d_ff, gates], [ffn.shared_d_ff, d, 1n]]));
}
return ($.truth(ffn.shared_gate) ? $.as_list([...$.iter(sizes), [d, 1n, 1n]]) : sizes);
});
const _latent_matrices = $.fn(["shape", "latent"], function (shape, latent) {
let d, heads, sizes, width;
[d, heads, width] = $.unpack([shape.d_model, shape.num_heads, $.add(latent.nope_dim, latent.rope_dim)], 3n, -1n);
sizes = $.as_list([[d, $.mul(heads, width), 1n]]);
if ($.isnt(latent.q_rank, null)) {
sizes = $.as_list([[d, latent.q_rank, 1n], [latent.q_rank, $.mul(heads, width), 1n]]);
}
return $.as_list([...$.iter(sizes), [d, $.add(latent.kv_rank, latent.rope_dim), 1n], [latent.kv_rank, $.mul(heads, $.add(latent.nope_dim, latent.value_dim)), 1n], [$.mul(heads, latent.value_dim), d, 1n]]);
});
return {Attention: () => Attention, DeltaAttention: () => DeltaAttention, FeedForward: () => FeedForward, Kind: () => Kind, LatentAttention: () => LatentAttention, Stack: () => Stack, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, _below: () => _below, _latent_matrices: () => _latent_matrices, _names: () => _names, attention_groups: () => attention_groups, attention_name: () => attention_name, dataclass: () => dataclass, ffn_layers: () => ffn_layers, ffn_name: () => ffn_name, layer_matrices: () => layer_matrices, lru_cache: () => lru_cache, stack: () => stack, without_window: () => without_window};
});
$.module("accounting.counting.adapters", () => {
let Dimensions, FfnDimensions, OF_FFN_MATRICES, Symbol, Term, TransformerShape, added;

Dimensions = $.from("accounting.counting.dimensions", "Dimensions");
FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
TransformerShape = $.from("accounting.shape", "TransformerShape");
OF_FFN_MATRICES = ["gate", "up", "gate_up", "down"];
const no_muon_of_adapters = $.fn(["shape", "optimizer"], function (shape, optimizer) {
if (($.isnt(shape.lora_rank, null) && $.eq(optimizer, "muon"))) {
throw $.ValueError("optimizer 'muon' is of whole matrices, and here adapters are trained: use adamw or sgd");
}
});
const adapted = $.fn(["shape"], function (shape) {
let d_ff, ffn, keys, n, queries, sizes;
if ($.is(shape.lora_rank, null)) {
return $.dict([]);
}
[n, [ffn]] = $.unpack([Dimensions(shape), shape.ffns], 2n, -1n);
d_ff = FfnDimensions(shape, ffn).d_ff;
[queries, keys] = $.unpack([$.mul(n.n_heads, $.bound(n, "head_dim")), $.mul(n.n_kv_heads, $.bound(n, "head_dim"))], 2n, -1n);
sizes = $.dict([["query", [n.d_model, queries]], ["key", [n.d_model, keys]], ["value", [n.d_model, keys]], ["qkv", [n.d_model, $.mul($.add(n.n_heads, $.mul(2n, n.n_kv_heads)), $.bound(n, "head_dim"))]], ["output", [queries, n.d_model]], ["gate", [n.d_model, d_ff]], ["up", [n.d_model, d_ff]], ["gate_up", [n.d_model, $.mul(2n, d_ff)]], ["down", [d_ff, n.d_model]]]);
return $.dict((() => { const $all = [];
for (const $$1 of $.iter(shape.adapted)) {
let name;
name = $$1;
$all.push([name, $.item(sizes, name)]);} return $all; })());
});
const rank_of = $.fn(["shape"], function (shape) {
return Symbol("lora_rank", $.or(shape.lora_rank, () => 0n));
});
const adapter_elements = $.fn(["shape", "experts", "of_ffn"], function (shape, experts, of_ffn = null) {
let into, name, one, out, rank, terms;
[rank, terms] = $.unpack([rank_of(shape), $.as_list([])], 2n, -1n);
for (const $$2 of $.iter($.method(adapted(shape), "items")())) {
[name, [into, out]] = $.unpack($$2, 2n, -1n);
if (($.is(of_ffn, null) || $.eq(of_ffn, $.has(name, OF_FFN_MATRICES)))) {
one = $.mul(rank, $.add(into, out));
$.method(terms, "append")(($.has(name, OF_FFN_MATRICES) ? $.mul(experts, one) : one));
}
}
return added(terms);
});
const adapter_tensors = $.fn(["shape"], function (shape) {
let _, copies, ffn, into, name, out, rank, tensors;
[rank, [ffn, ..._]] = $.unpack([$.or(shape.lora_rank, () => 0n), shape.ffns], 2n, -1n);
tensors = $.as_list([]);
for (const $$3 of $.iter($.method(adapted(shape), "items")())) {
[name, [into, out]] = $.unpack($$3, 2n, -1n);
copies = $.mul(shape.num_layers, ($.has(name, OF_FFN_MATRICES) ? ffn.held : 1n));
tensors = $.iadd(tensors, $.as_list([[copies, $.mul(rank, $.int(into))], [copies, $.mul(rank, $.int(out))]]));
}
return tensors;
});
return {Dimensions: () => Dimensions, FfnDimensions: () => FfnDimensions, OF_FFN_MATRICES: () => OF_FFN_MATRICES, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, adapted: () => adapted, adapter_elements: () => adapter_elements, adapter_tensors: () => adapter_tensors, added: () => added, no_muon_of_adapters: () => no_muon_of_adapters, rank_of: () => rank_of};
});
$.module("accounting.hardware.interconnect", () => {
let ByteRate, COLLECTIVE, INTERCONNECTS, Interconnect, LARGEST_RING, LINK_HOP, NETWORK_HOP, ROWS, UNKNOWN, dataclass, named, positive;

dataclass = $.libraries.dataclasses.dataclass;
ROWS = $.from("accounting.hardware.devices", "ROWS");
named = $.from("accounting.shape", "named");
positive = $.from("accounting.shape", "positive");
ByteRate = $.from("accounting.units", "ByteRate");
UNKNOWN = ByteRate(0.0);
COLLECTIVE = 0.8;
[LINK_HOP, NETWORK_HOP] = $.unpack([3.4e-06, 9.6e-06], 2n, -1n);
LARGEST_RING = 72n;
Interconnect = $.class("Interconnect", [], true, [["node_size", undefined, false], ["link", undefined, false], ["network", undefined, false], ["source", undefined, false], ["measured", () => UNKNOWN, false]], [
["method", "__post_init__", $.fn([], function () {
const self = this;
let name;
positive("node_size", self.node_size);
for (const $$1 of $.iter(["link", "network"])) {
name = $$1;
if (!($.lt(0n, $.float($.getattr(self, name))) && $.lt($.float($.getattr(self, name)), $.float("inf")))) {
throw $.ValueError(["expected ", $.format(name, "", ""), " above 0 bytes a second, got ", $.format($.float($.getattr(self, name)), "", ["g"].join(''))].join(''));
}
}
})],
["property", "reached", $.fn([], function () {
const self = this;
return $.or($.float(self.measured), () => $.mul(COLLECTIVE, $.float(self.link)));
})],
["property", "network_reached", $.fn([], function () {
const self = this;
return $.mul(COLLECTIVE, $.float(self.network));
})],
["method", "latency", $.fn(["devices", "in_node"], function (devices, in_node) {
const self = this;
let nodes;
if ($.gt(self.node_size, LARGEST_RING)) {
return 0.0;
}
nodes = $.negative($.floordiv($.negative(devices), in_node));
return $.add($.mul($.sub(devices, nodes), LINK_HOP), $.mul($.sub(nodes, 1n), NETWORK_HOP));
})]
]);
const _from_row = $.fn(["row"], function (row) {
return $.call(Interconnect, [], {node_size: $.int($.item(row, "node size")), link: ByteRate($.mul($.float($.item(row, "link GB/s")), 1000000000.0)), network: ByteRate($.div($.mul($.float($.item(row, "network Gb/s")), 1000000000.0), 8n)), source: $.method("; measured: ", "join")($.filter(null, [$.item(row, "interconnect source"), $.item(row, "link measured source")])), measured: ByteRate($.mul($.float($.or($.item(row, "link measured GB/s"), () => 0n)), 1000000000.0))});
});
INTERCONNECTS = $.dict((() => { const $all = [];
for (const $$2 of $.iter(ROWS)) {
let row;
row = $$2;
if (!($.truth($.item(row, "node size")))) continue;
$all.push([$.item(row, "name"), _from_row(row)]);} return $all; })());
const interconnect = $.fn(["device_name"], function (device_name) {
return named("server with a known interconnect", device_name, INTERCONNECTS);
});
return {ByteRate: () => ByteRate, COLLECTIVE: () => COLLECTIVE, INTERCONNECTS: () => INTERCONNECTS, Interconnect: () => Interconnect, LARGEST_RING: () => LARGEST_RING, LINK_HOP: () => LINK_HOP, NETWORK_HOP: () => NETWORK_HOP, ROWS: () => ROWS, UNKNOWN: () => UNKNOWN, _from_row: () => _from_row, dataclass: () => dataclass, interconnect: () => interconnect, named: () => named, positive: () => positive};
});
$.module("accounting.hardware.devices", () => {
let ByteRate, Bytes, DEVICES, Device, FLOPRate, FORMATS, MEASURED, ROWS, TABLE, UNKNOWN, dataclass, human, named;



dataclass = $.libraries.dataclasses.dataclass;
named = $.from("accounting.shape", "named");
ByteRate = $.from("accounting.units", "ByteRate");
Bytes = $.from("accounting.units", "Bytes");
FLOPRate = $.from("accounting.units", "FLOPRate");
human = $.from("accounting.units", "human");
MEASURED = "measured";
FORMATS = ["bf16", "fp16", "tf32", "fp32", "fp8", "int8"];
TABLE = "";
UNKNOWN = FLOPRate(0.0);
Device = $.class("Device", [], true, [["name", undefined, false], ["peaks", undefined, false], ["memory", undefined, false], ["bandwidth", undefined, false], ["source", undefined, false], ["matmul", () => UNKNOWN, false], ["matmul_source", () => "", false]], [
["property", "measured", $.fn([], function () {
const self = this;
return $.eq(self.source, MEASURED);
})],
["property", "known_bandwidth", $.fn([], function () {
const self = this;
if (!$.truth(self.bandwidth)) {
throw $.ValueError([$.format(self.name, "", ""), " has no known bandwidth: give one to measured_device"].join(''));
}
return self.bandwidth;
})],
["property", "attainable", $.fn([], function () {
const self = this;
let maker, parts;
if ($.truth(self.measured)) {
return 1.0;
}
if ($.truth(self.matmul)) {
return $.div($.float(self.matmul), $.float($.item(self.peaks, "bf16")));
}
maker = $.method($.item($.method(self.source, "split")(), 0n), "rstrip")("'s:");
parts = $.as_list((() => { const $all = [];
for (const $$1 of $.iter($.method(DEVICES, "values")())) {
let one;
one = $$1;
if (!(($.truth(one.matmul) && $.truth($.method(one.source, "startswith")(maker))))) continue;
$all.push(one.attainable);} return $all; })());
if (!$.truth(parts)) {
parts = $.as_list((() => { const $all = [];
for (const $$2 of $.iter($.method(DEVICES, "values")())) {
let one;
one = $$2;
if (!($.truth(one.matmul))) continue;
$all.push(one.attainable);} return $all; })());
}
return $.div($.sum(parts), $.len(parts));
})],
["method", "rate_in_words", $.fn(["dtype"], function (dtype) {
const self = this;
let rate;
rate = human(self.peak(dtype));
return ($.truth(self.measured) ? ["the ", $.format(rate, "", ""), " that were measured"].join('') : [$.format(dtype, "", ""), " dense peak, ", $.format(rate, "", ""), " (", $.format(self.source, "", ""), ")"].join(''));
})],
["method", "peak", $.fn(["dtype"], function (dtype) {
const self = this;
if ($.hasnt(dtype, self.peaks)) {
throw $.ValueError([$.format(self.name, "", ""), " has no published ", $.format(dtype, "", ""), " peak, use one of ", $.format($.method(", ", "join")(self.peaks), "", "")].join(''));
}
return $.item(self.peaks, dtype);
})]
]);
const device = $.fn(["name"], function (name) {
return named("device", name, DEVICES);
});
const rows = $.fn([], () => DATA.devices);
const _from_row = $.fn(["row"], function (row) {
let peaks;
peaks = $.dict((() => { const $all = [];
for (const $$3 of $.iter(FORMATS)) {
let name;
name = $$3;
if (!($.truth($.item(row, [$.format(name, "", ""), " TFLOP/s"].join(''))))) continue;
$all.push([name, FLOPRate($.mul($.float($.item(row, [$.format(name, "", ""), " TFLOP/s"].join(''))), 1000000000000.0))]);} return $all; })());
return $.call(Device, [], {name: $.item(row, "name"), peaks: peaks, memory: Bytes($.round($.mul($.float($.item(row, "memory GB")), 1000000000.0))), bandwidth: ByteRate($.mul($.float($.or($.item(row, "bandwidth GB/s"), () => 0n)), 1000000000.0)), source: $.item(row, "source"), matmul: FLOPRate($.mul($.float($.or($.item(row, "matmul TFLOP/s"), () => 0n)), 1000000000000.0)), matmul_source: $.item(row, "matmul source")});
});
ROWS = rows();
DEVICES = $.dict((() => { const $all = [];
for (const $$4 of $.iter(ROWS)) {
let row;
row = $$4;
$all.push([$.item(row, "name"), _from_row(row)]);} return $all; })());
return {ByteRate: () => ByteRate, Bytes: () => Bytes, DEVICES: () => DEVICES, Device: () => Device, FLOPRate: () => FLOPRate, FORMATS: () => FORMATS, MEASURED: () => MEASURED, ROWS: () => ROWS, TABLE: () => TABLE, UNKNOWN: () => UNKNOWN, _from_row: () => _from_row, dataclass: () => dataclass, device: () => device, human: () => human, named: () => named, rows: () => rows};
});
$.module("accounting.counting.flops", () => {
let Attention, Breakdown, DeltaAttention, DeltaDimensions, Dimensions, FLOPs, FfnDimensions, LatentAttention, LatentDimensions, PAIRS, RECOMPUTATIONS, Symbol, Term, TransformerShape, _COUNTED, adapter_elements, added, attention_groups, attention_matrices, breakdown, choose, constant, ffn_layers, positive;

Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");
adapter_elements = $.from("accounting.counting.adapters", "adapter_elements");
DeltaDimensions = $.from("accounting.counting.dimensions", "DeltaDimensions");
Dimensions = $.from("accounting.counting.dimensions", "Dimensions");
FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
LatentDimensions = $.from("accounting.counting.dimensions", "LatentDimensions");
attention_matrices = $.from("accounting.counting.dimensions", "attention_matrices");
attention_groups = $.from("accounting.counting.layers", "attention_groups");
ffn_layers = $.from("accounting.counting.layers", "ffn_layers");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
constant = $.from("accounting.formula", "constant");
Attention = $.from("accounting.shape", "Attention");
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
LatentAttention = $.from("accounting.shape", "LatentAttention");
TransformerShape = $.from("accounting.shape", "TransformerShape");
choose = $.from("accounting.shape", "choose");
positive = $.from("accounting.shape", "positive");
FLOPs = $.from("accounting.units", "FLOPs");
PAIRS = ["full", "half", "causal"];
RECOMPUTATIONS = ["none", "fused", "selective", "full"];
_COUNTED = $.dict([["full", "every one of the seq² pairs of positions, masked or not, as an explicit matrix multiplication computes them"], ["half", "half of the seq² pairs of positions, the usual approximation of causality"], ["causal", "exactly the pairs a causal mask shows: seq·(seq + 1)/2, fewer with a window"]]);
const pairs_in_words = $.fn(["pairs"], function (pairs) {
return $.item(_COUNTED, pairs);
});
const forward_flops = $.fn(["shape", "seq_len", "batch_size", "pairs"], function (shape, seq_len = null, batch_size = 1n, pairs = "full") {
let batch, seq;
seq = Symbol("seq", shape.sequence(seq_len));
batch = Symbol("batch", positive("batch_size", batch_size));
choose("pairs", pairs, PAIRS);
return breakdown("forward FLOPs", FLOPs, _forward(shape, seq, batch, doubled_pairs(shape, seq, pairs)), ["matrix multiplications only; attention scores over ", $.format(pairs_in_words(pairs), "", "")].join(''));
});
const cached = $.fn(["attention", "seen"], function (attention, seen) {
let window;
if (($.is(attention.window, null) || $.ge(attention.window, $.int(seen)))) {
return seen;
}
window = Symbol("window", attention.window);
return ($.truth(attention.chunked) ? $.add($.mod($.sub(seen, 1n), window), 1n) : window);
});
const doubled_pairs = $.fn(["shape", "seq", "pairs"], function (shape, seq, pairs = "causal") {
if ($.eq(pairs, "full")) {
return _pairs(shape, ((_, layers) => $.mul(layers, $.mul($.mul(2n, seq), seq))));
}
if ($.eq(pairs, "half")) {
return _pairs(shape, ((_, layers) => $.mul(layers, $.mul(seq, seq))));
}
return _pairs(shape, ((attention, layers) => $.mul(layers, _doubled(attention, seq))));
});
const _doubled = $.fn(["attention", "seq"], function (attention, seq) {
let rest, window;
if (($.is(attention.window, null) || $.ge(attention.window, $.int(seq)))) {
return $.mul(seq, $.add(seq, 1n));
}
window = Symbol("window", attention.window);
if ($.truth(attention.chunked)) {
rest = $.mod(seq, window);
return $.add($.mul($.floordiv(seq, window), $.mul(window, $.add(window, 1n))), $.mul(rest, $.add(rest, 1n)));
}
return $.add($.mul(window, $.add(window, 1n)), $.mul($.mul(2n, window), $.sub(seq, window)));
});
const _pairs = $.fn(["shape", "count"], function (shape, count) {
let attention, key, layers, pairs, sums;
sums = $.dict([]);
for (const $$1 of $.iter($.method(windows(shape), "items")())) {
[attention, layers] = $.unpack($$1, 2n, -1n);
if (!$.truth($.isinstance(attention, DeltaAttention))) {
[pairs, key] = $.unpack([count(attention, layers), ($.eq(attention, shape.latent) ? LatentAttention : Attention)], 2n, -1n);
$.set_item(sums, key, ($.has(key, sums) ? $.add($.item(sums, key), pairs) : pairs));
}
}
return sums;
});
const windows = $.fn(["shape"], function (shape) {
let count, counts, key, kind, names, order;
counts = $.dict([]);
for (const $$2 of $.iter($.method(shape.counts, "items")())) {
[kind, count] = $.unpack($$2, 2n, -1n);
key = $.bound(kind, "attention");
if ($.truth($.isinstance(key, Attention))) {
key = Attention(key.window, key.chunked, false, "none");
}
$.set_item(counts, key, $.add($.method(counts, "get")(key, 0n), count));
}
if ($.eq($.len(counts), 1n)) {
return $.dict((() => { const $all = [];
for (const $$3 of $.iter($.method(counts, "items")())) {
let count, key;
[key, count] = $.unpack($$3, 2n, -1n);
$all.push([key, Symbol("n_layers", count)]);} return $all; })());
}
names = $.dict([[Attention, "full"], [LatentAttention, "latent"], [DeltaAttention, "delta"]]);
order = $.call($.sorted, [counts], {key: ((one) => $.or(one.window, () => 0n))});
return $.dict((() => { const $all = [];
for (const $$4 of $.iter(order)) {
let key;
key = $$4;
$all.push([key, Symbol(($.truth(key.window) ? "window_layers" : [$.format($.item(names, $.type(key)), "", ""), "_layers"].join('')), $.item(counts, key))]);} return $all; })());
});
const score_flops = $.fn(["shape", "batch", "pairs", "absorbed"], function (shape, batch, pairs, absorbed = false) {
let attention, doubled, m, n, of_keys, of_values, values, width;
n = Dimensions(shape);
[of_keys, of_values] = $.unpack([$.as_list([]), $.as_list([])], 2n, -1n);
for (const $$5 of $.iter($.method(pairs, "items")())) {
[attention, doubled] = $.unpack($$5, 2n, -1n);
const $$6 = $.bound(n, "head_dim");
width = $$6;
values = $$6;
if (($.is(attention, LatentAttention) && $.isnt(shape.latent, null))) {
m = LatentDimensions(shape.latent);
width = ($.truth(absorbed) ? $.add(m.kv_rank, m.rope_dim) : $.add(m.nope_dim, m.rope_dim));
values = ($.truth(absorbed) ? m.kv_rank : m.value_dim);
}
$.method(of_keys, "append")($.mul($.mul($.mul(batch, n.n_heads), width), doubled));
$.method(of_values, "append")($.mul($.mul($.mul(batch, n.n_heads), values), doubled));
}
return $.dict([["keys", added(of_keys)], ["values", added(of_values)]]);
});
const delta_flops = $.fn(["shape", "tokens"], function (shape, tokens) {
let attention, count, layers, s, sizes;
sizes = $.as_list([]);
for (const $$7 of $.iter($.method(shape.attentions, "items")())) {
[attention, layers] = $.unpack($$7, 2n, -1n);
if ($.truth($.isinstance(attention, DeltaAttention))) {
s = DeltaDimensions(attention);
count = Symbol(($.eq($.len(shape.attentions), 1n) ? "n_layers" : "delta_layers"), layers);
$.method(sizes, "append")($.mul(6n, $.mul($.mul($.mul($.mul(tokens, count), s.value_heads), s.key_dim), s.value_dim)));
}
}
return added(sizes);
});
const _forward = $.fn(["shape", "seq", "batch", "pairs", "absorbed"], function (shape, seq, batch, pairs, absorbed = false) {
let alike, attention, each, ffn, layers, m, n, one, projections, routed, router, scores, size, terms, tokens;
[n, tokens] = $.unpack([Dimensions(shape), $.mul(batch, seq)], 2n, -1n);
[projections, ffn, router] = $.unpack([$.as_list([]), $.as_list([]), $.as_list([])], 3n, -1n);
for (const $$8 of $.iter($.method(attention_groups(shape), "items")())) {
[attention, layers] = $.unpack($$8, 2n, -1n);
if ($.truth($.isinstance(attention, Attention))) {
size = $.mul(4n, $.mul($.mul($.mul($.mul(tokens, layers), n.d_model), $.bound(n, "head_dim")), $.add(n.n_heads, n.n_kv_heads)));
if ($.truth(attention.gated)) {
size = $.mul(2n, $.mul($.mul($.mul($.mul(tokens, layers), n.d_model), $.bound(n, "head_dim")), $.add($.mul(3n, n.n_heads), $.mul(2n, n.n_kv_heads))));
}
$.method(projections, "append")(size);
} else {
$.method(projections, "append")($.mul(2n, $.mul($.mul(tokens, layers), added($.method(attention_matrices(shape, attention), "values")()))));
}
}
each = $.mul(2n, shape.matrices_of_ffn);
for (const $$9 of $.iter($.method(ffn_layers(shape), "items")())) {
[one, layers] = $.unpack($$9, 2n, -1n);
[m, routed] = $.unpack([FfnDimensions(shape, one), $.mul(tokens, layers)], 2n, -1n);
size = $.mul(each, $.mul($.mul(routed, n.d_model), m.d_ff));
$.method(ffn, "append")(($.is(one.experts, null) ? size : $.mul(m.active_experts, size)));
if ($.isnt(one.shared_d_ff, null)) {
$.method(ffn, "append")($.mul(each, $.mul($.mul(routed, n.d_model), m.shared_d_ff)));
}
if ($.truth(one.shared_gate)) {
$.method(ffn, "append")($.mul(2n, $.mul(routed, n.d_model)));
}
if ($.isnt(one.experts, null)) {
$.method(router, "append")($.mul(2n, $.mul($.mul(routed, n.d_model), m.n_experts)));
}
}
scores = $.call(score_flops, [shape, batch, pairs], {absorbed: absorbed});
alike = $.hasnt(LatentAttention, pairs);
terms = $.dict([["projections", added(projections)], ["scores", ($.truth(alike) ? $.mul(2n, $.item(scores, "keys")) : $.add($.item(scores, "keys"), $.item(scores, "values")))], ["ffn", added(ffn)]]);
if ($.truth($.any((() => { const $all = [];
for (const $$10 of $.iter(shape.attentions)) {
let one;
one = $$10;
$all.push($.isinstance(one, DeltaAttention));} return $all; })()))) {
$.set_item(terms, "delta rule", delta_flops(shape, tokens));
}
if ($.truth(shape.value_embeddings)) {
layers = Symbol("value_layers", shape.value_embeddings);
$.set_item(terms, "value gates", $.mul(2n, $.mul($.mul($.mul(tokens, layers), n.d_model), n.n_kv_heads)));
}
if ($.truth(router)) {
$.set_item(terms, "router", added(router));
}
if ($.isnt(shape.lora_rank, null)) {
[one] = $.unpack(shape.ffns, 1n, -1n);
$.set_item(terms, "adapters", $.mul(2n, $.mul($.mul(tokens, n.n_layers), adapter_elements(shape, one.active))));
}
return $.dict([...$.entries(terms), ["head", $.mul(2n, $.mul($.mul(tokens, n.d_model), n.vocab))]]);
});
const backward_terms = $.fn(["shape", "forward"], function (shape, forward) {
let frozen;
frozen = ($.is(shape.lora_rank, null) ? [] : ["projections", "ffn", "router", "head"]);
return $.dict((() => { const $all = [];
for (const $$11 of $.iter($.method(forward, "items")())) {
let name, term;
[name, term] = $.unpack($$11, 2n, -1n);
$all.push([name, ($.has(name, frozen) ? term : $.mul(2n, term))]);} return $all; })());
});
const training_flops = $.fn(["shape", "seq_len", "batch_size", "pairs", "recompute"], function (shape, seq_len = null, batch_size = 1n, pairs = "full", recompute = "none") {
let forward, terms;
forward = $.dict($.call(forward_flops, [shape, seq_len, batch_size], {pairs: pairs}).terms);
choose("recompute", recompute, RECOMPUTATIONS);
terms = $.dict((() => { const $all = [];
for (const $$12 of $.iter($.method(forward, "items")())) {
let name, term;
[name, term] = $.unpack($$12, 2n, -1n);
$all.push([["forward ", $.format(name, "", "")].join(''), term]);} return $all; })());
terms = $.bitor(terms, $.dict((() => { const $all = [];
for (const $$13 of $.iter($.method(backward_terms(shape, forward), "items")())) {
let name, term;
[name, term] = $.unpack($$13, 2n, -1n);
$all.push([["backward ", $.format(name, "", "")].join(''), term]);} return $all; })()));
if ($.eq(recompute, "fused")) {
$.set_item(terms, "recomputed scores", $.floordiv($.item(forward, "scores"), 2n));
} else {
if ($.eq(recompute, "selective")) {
$.set_item(terms, "recomputed scores", $.item(forward, "scores"));
} else {
if ($.eq(recompute, "full")) {
terms = $.bitor(terms, $.dict((() => { const $all = [];
for (const $$14 of $.iter($.method(forward, "items")())) {
let name, term;
[name, term] = $.unpack($$14, 2n, -1n);
if (!($.ne(name, "head"))) continue;
$all.push([["recomputed ", $.format(name, "", "")].join(''), term]);} return $all; })()));
}
}
}
return breakdown("training FLOPs", FLOPs, terms, $.add($.add($.add("matrix multiplications of forward and backward, the backward ", ($.is(shape.lora_rank, null) ? "exactly twice the forward; " : "of a frozen matrix as much as its forward; ")), ($.eq(recompute, "none") ? "nothing recomputed (model FLOPs)" : ["recomputing: ", $.format(recompute, "", ""), " (hardware FLOPs)"].join(''))), ["; scores over ", $.format(pairs_in_words(pairs), "", "")].join('')));
});
return {Attention: () => Attention, Breakdown: () => Breakdown, DeltaAttention: () => DeltaAttention, DeltaDimensions: () => DeltaDimensions, Dimensions: () => Dimensions, FLOPs: () => FLOPs, FfnDimensions: () => FfnDimensions, LatentAttention: () => LatentAttention, LatentDimensions: () => LatentDimensions, PAIRS: () => PAIRS, RECOMPUTATIONS: () => RECOMPUTATIONS, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, _COUNTED: () => _COUNTED, _doubled: () => _doubled, _forward: () => _forward, _pairs: () => _pairs, adapter_elements: () => adapter_elements, added: () => added, attention_groups: () => attention_groups, attention_matrices: () => attention_matrices, backward_terms: () => backward_terms, breakdown: () => breakdown, cached: () => cached, choose: () => choose, constant: () => constant, delta_flops: () => delta_flops, doubled_pairs: () => doubled_pairs, ffn_layers: () => ffn_layers, forward_flops: () => forward_flops, pairs_in_words: () => pairs_in_words, positive: () => positive, score_flops: () => score_flops, training_flops: () => training_flops, windows: () => windows};
});
$.module("accounting.cluster.zero", () => {
let Enum, Held, OF_A_PASS, Part, Symbol, Term, ZERO_STAGES, dataclass;

dataclass = $.libraries.dataclasses.dataclass;
Enum = $.libraries.enum.Enum;
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
ZERO_STAGES = ["0", "1", "2", "3"];
Part = $.class("Part", [Enum], false, [], [
["value", ["PARAMETERS"], "parameters"],
["value", ["GATHERED"], "gathered parameters"],
["value", ["GRADIENTS"], "gradients"],
["value", ["REDUCED"], "gradients being reduced"],
["value", ["OPTIMIZER_STATE"], "optimizer state"]
]);
OF_A_PASS = [Part.GATHERED, Part.REDUCED];
Held = $.class("Held", [], true, [["params", undefined, false], ["block", undefined, false], ["devices", undefined, false], ["trained", undefined, false], ["block_trained", undefined, false]], [

]);
const shard_of = $.fn(["whole", "dp", "data_rank"], function (whole, dp, data_rank = 0n) {
let each, left;
each = $.floordiv($.add(whole, $.sub(dp, 1n)), dp);
left = $.sub($.int(whole), $.mul(data_rank, $.int(each)));
return ($.ge(left, $.int(each)) ? each : Symbol("last_shard", $.max(0n, left)));
});
const sharded_bytes = $.fn(["held", "weight", "gradient", "zero", "layers", "data_rank"], function (held, weight, gradient, zero, layers, data_rank = 0n) {
let params, several, trained;
several = $.gt($.int(held.devices), 1n);
[params, trained] = $.unpack((() => { const $all = [];
for (const $$1 of $.iter([held.params, held.trained])) {
let whole;
whole = $$1;
$all.push(shard_of(whole, held.devices, data_rank));} return $all; })(), 2n, -1n);
return $.dict([[Part.PARAMETERS, $.mul(($.ge(zero, 3n) ? params : held.params), weight)], [Part.GATHERED, (($.ge(zero, 3n) && $.truth(several)) ? $.mul($.mul($.min(2n, layers), held.block), weight) : Term(0n))], [Part.GRADIENTS, $.mul(($.ge(zero, 2n) ? trained : held.trained), gradient)], [Part.REDUCED, (($.ge(zero, 2n) && $.truth(several)) ? $.mul(held.block_trained, weight) : Term(0n))]]);
});
const zero_traffic = $.fn(["held", "weight", "gradient", "zero", "micro_batches"], function (held, weight, gradient, zero, micro_batches) {
let dp, once, reduced, trained;
dp = held.devices;
trained = $.mul($.floordiv($.add(held.trained, $.sub(dp, 1n)), dp), $.sub(dp, 1n));
[once, reduced] = $.unpack([$.mul(trained, weight), $.mul(trained, gradient)], 2n, -1n);
if ($.ge(zero, 3n)) {
once = $.mul($.mul($.floordiv($.add(held.params, $.sub(dp, 1n)), dp), $.sub(dp, 1n)), weight);
return $.dict([["reduce-scatter of gradients", $.mul(micro_batches, reduced)], ["all-gather for the forward", $.mul(micro_batches, once)], ["all-gather for the backward", $.mul(micro_batches, once)]]);
}
return $.dict([["reduce-scatter of gradients", ($.eq(zero, 2n) ? $.mul(micro_batches, reduced) : reduced)], [($.eq(zero, 0n) ? "all-gather of gradients" : "all-gather of parameters"), ($.eq(zero, 0n) ? reduced : once)]]);
});
const all_reduced = $.fn(["elements", "devices"], function (elements, devices) {
return $.mul(2n, $.mul($.sub(devices, 1n), $.floordiv($.add(elements, $.sub(devices, 1n)), devices)));
});
return {Enum: () => Enum, Held: () => Held, OF_A_PASS: () => OF_A_PASS, Part: () => Part, Symbol: () => Symbol, Term: () => Term, ZERO_STAGES: () => ZERO_STAGES, all_reduced: () => all_reduced, dataclass: () => dataclass, shard_of: () => shard_of, sharded_bytes: () => sharded_bytes, zero_traffic: () => zero_traffic};
});
$.module("accounting.cluster.traffic", () => {
let Breakdown, Bytes, DEFAULT, Enum, FIRST, FfnDimensions, ForwardPass, Joins, LatentDimensions, Layout, Place, Policy, Symbol, Term, Traffic, TransformerShape, added, all_reduced, dataclass, device_forward_pass, ffn_layers, replicated, replicated_parameters, zero_traffic;

dataclass = $.libraries.dataclasses.dataclass;
Enum = $.libraries.enum.Enum;
Breakdown = $.from("accounting.breakdown", "Breakdown");
replicated = $.from("accounting.cluster.device", "replicated");
replicated_parameters = $.from("accounting.cluster.device", "replicated_parameters");
FIRST = $.from("accounting.cluster.layout", "FIRST");
Layout = $.from("accounting.cluster.layout", "Layout");
Place = $.from("accounting.cluster.layout", "Place");
device_forward_pass = $.from("accounting.cluster.memory", "device_forward_pass");
all_reduced = $.from("accounting.cluster.zero", "all_reduced");
zero_traffic = $.from("accounting.cluster.zero", "zero_traffic");
FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
LatentDimensions = $.from("accounting.counting.dimensions", "LatentDimensions");
ffn_layers = $.from("accounting.counting.layers", "ffn_layers");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
ForwardPass = $.from("accounting.memory.activations", "ForwardPass");
DEFAULT = $.from("accounting.policy", "DEFAULT");
Policy = $.from("accounting.policy", "Policy");
TransformerShape = $.from("accounting.shape", "TransformerShape");
Bytes = $.from("accounting.units", "Bytes");
Joins = $.class("Joins", [Enum], false, [], [
["value", ["TENSOR"], "tensor"],
["value", ["CONTEXT"], "context"],
["value", ["EXPERT"], "expert"],
["value", ["PIPELINE"], "pipeline"],
["value", ["DATA"], "data"]
]);
Traffic = $.class("Traffic", [Breakdown], true, [["joins", undefined, false]], [
["method", "by_group", $.fn([], function () {
const self = this;
let _, group, sums, term;
sums = $.method($.dict, "fromkeys")(Joins, 0n);
for (const $$1 of $.iter($.call($.zip, [self.joins, self.terms], {strict: true}))) {
[group, [_, term]] = $.unpack($$1, 2n, -1n);
$.set_item(sums, group, $.iadd($.item(sums, group), $.int(term)));
}
return $.dict((() => { const $all = [];
for (const $$2 of $.iter($.method(sums, "items")())) {
let group, size;
[group, size] = $.unpack($$2, 2n, -1n);
$all.push([group, Bytes(size)]);} return $all; })());
})]
]);
const device_traffic = $.fn(["shape", "layout", "place", "batch_size", "seq_len", "policy"], function (shape, layout, place = FIRST, batch_size = 1n, seq_len = null, policy = DEFAULT) {
let found, run, terms;
run = device_forward_pass(shape, layout, place, batch_size, seq_len, policy);
found = $.dict([[Joins.TENSOR, _tensor(run, shape, layout, place)], [Joins.CONTEXT, _context(run, layout)], [Joins.EXPERT, _expert(run, layout)], [Joins.PIPELINE, _pipeline(run, layout, place)], [Joins.DATA, _data(run, shape, layout, place)]]);
terms = $.as_list((() => { const $all = [];
for (const $$3 of $.iter($.method(found, "items")())) {
let group, sent;
[group, sent] = $.unpack($$3, 2n, -1n);
for (const $$4 of $.iter($.method(sent, "items")())) {
let name, term;
[name, term] = $.unpack($$4, 2n, -1n);
$all.push([name, group, term]);}} return $all; })());
return Traffic(["sent by stage ", $.format(place.stage, "", ""), ", rank ", $.format(place.tensor_rank, "", ""), " in a step"].join(''), Bytes, $.tuple((() => { const $all = [];
for (const $$5 of $.iter(terms)) {
let _, name, term;
[name, _, term] = $.unpack($$5, 3n, -1n);
$all.push([name, term]);} return $all; })()), [$.format(policy.precision, "", ""), ", ", $.format(layout.micro_batches, "", ""), " micro-batches of ", $.format(batch_size, "", ""), "; ring collectives over shares padded to one size"].join(''), $.tuple((() => { const $all = [];
for (const $$6 of $.iter(terms)) {
let _, group;
[_, group, _] = $.unpack($$6, 3n, -1n);
$all.push(group);} return $all; })()));
});
const _micro_batches = $.fn(["layout"], function (layout) {
return Symbol("micro_batches", layout.micro_batches);
});
const _tensor = $.fn(["run", "shape", "layout", "place"], function (run, shape, layout, place) {
let forward, in_backward, in_forward, latents, m, n, once, positions, read, replicas, sent, shared, steps, tp;
if ($.eq(layout.tensor, 1n)) {
return $.dict([]);
}
[n, steps, tp, shared] = $.unpack([run.n, _micro_batches(layout), Symbol("tp", layout.tensor), layout.sequence_parallel], 4n, -1n);
positions = ($.truth(shared) ? $.mul($.bound(run, "between"), tp) : run.tokens);
const collected = $.fn(["width"], function (width) {
return $.mul($.sub(tp, 1n), $.floordiv($.add($.mul(positions, width), $.sub(tp, 1n)), tp));
});
once = collected(n.d_model);
[in_forward, in_backward] = $.unpack([$.mul(4n, once), $.mul(($.truth(shared) ? 6n : 4n), once)], 2n, -1n);
if ($.isnt(shape.latent, null)) {
m = LatentDimensions(shape.latent);
read = $.add($.add(($.isnt(shape.latent.q_rank, null) ? m.q_rank : n.d_model), m.kv_rank), m.rope_dim);
latents = collected(read);
in_forward = ($.truth(shared) ? $.add($.mul(3n, once), latents) : $.mul(4n, once));
in_backward = $.add($.mul(($.truth(shared) ? 4n : 2n), once), $.mul(2n, latents));
}
forward = $.mul($.mul($.mul(steps, n.n_layers), in_forward), run.act);
sent = $.dict([["sums of layers, forward", forward], ["sums of layers, recomputed", ($.eq(run.policy.activation_checkpointing, "full") ? forward : Term(0n))], ["sums of layers, backward", $.mul($.mul($.mul(steps, n.n_layers), in_backward), run.act)]]);
if ($.eq(place.stage, 0n)) {
$.set_item(sent, "sum of embeddings", $.mul(2n, $.mul($.mul(steps, once), run.residual)));
}
if ($.eq(place.stage, $.sub(layout.pipeline, 1n))) {
$.set_item(sent, "gradient of the head's input", $.mul($.mul($.mul(steps, ($.truth(shared) ? 3n : 2n)), once), run.act));
$.set_item(sent, "softmax over the vocabulary", $.mul(6n, $.mul($.mul(steps, 4n), $.mul($.sub(tp, 1n), $.floordiv($.add(run.tokens, $.sub(tp, 1n)), tp)))));
}
if (($.truth(shared) || $.isnt(shape.lora_rank, null))) {
replicas = Symbol("replicated_params", replicated_parameters(shape, layout, place));
$.set_item(sent, "gradients of what is shared", $.mul(all_reduced(replicas, tp), run.gradient));
}
return sent;
});
const _context = $.fn(["run", "layout"], function (run, layout) {
let cp, forward, keys_and_values, m, n, recomputed, width;
if ($.eq(layout.context, 1n)) {
return $.dict([]);
}
[n, cp] = $.unpack([run.n, Symbol("cp", layout.context)], 2n, -1n);
width = $.mul($.mul(2n, n.n_kv_heads), $.bound(n, "head_dim"));
if ($.isnt($.bound(run, "shape").latent, null)) {
m = LatentDimensions($.bound(run, "shape").latent);
width = $.mul(n.n_heads, $.add($.add(m.nope_dim, m.rope_dim), m.value_dim));
}
keys_and_values = $.mul($.mul(run.tokens, width), run.act);
forward = $.mul($.mul($.mul(_micro_batches(layout), n.n_layers), $.sub(cp, 1n)), keys_and_values);
recomputed = $.ne(run.policy.activation_checkpointing, "none");
return $.dict([["keys and values, forward", forward], ["keys and values, recomputed", ($.truth(recomputed) ? forward : Term(0n))], ["keys, values and their gradients, backward", $.mul(2n, forward)]]);
});
const _expert = $.fn(["run", "layout"], function (run, layout) {
let ep, forward, n;
if ($.eq(layout.expert, 1n)) {
return $.dict([]);
}
[n, ep] = $.unpack([run.n, Symbol("ep", layout.expert)], 2n, -1n);
forward = added((() => { const $all = [];
for (const $$7 of $.iter($.method(ffn_layers($.bound(run, "shape")), "items")())) {
let ffn, layers;
[ffn, layers] = $.unpack($$7, 2n, -1n);
if (!($.isnt(ffn.experts, null))) continue;
$all.push($.mul($.mul($.mul($.mul(_micro_batches(layout), layers), 2n), $.mul($.sub(ep, 1n), $.floordiv($.add($.mul($.mul($.bound(run, "between"), FfnDimensions($.bound(run, "shape"), ffn).active_experts), n.d_model), $.sub(ep, 1n)), ep))), run.act));} return $all; })());
return $.dict([["tokens to experts and back, forward", forward], ["tokens to experts and back, recomputed", ($.eq(run.policy.activation_checkpointing, "full") ? forward : Term(0n))], ["tokens to experts and back, backward", forward]]);
});
const _pipeline = $.fn(["run", "layout", "place"], function (run, layout, place) {
let first, last, n, passed, sent, steps;
[n, steps, sent] = $.unpack([run.n, _micro_batches(layout), $.dict([])], 3n, -1n);
[first, last] = $.unpack([$.eq(place.stage, 0n), $.eq(place.stage, $.sub(layout.pipeline, 1n))], 2n, -1n);
passed = $.mul($.mul($.bound(run, "between"), n.d_model), run.residual);
if (!$.truth(last)) {
$.set_item(sent, "to the next stage", $.mul(steps, passed));
}
if (!$.truth(first)) {
$.set_item(sent, "gradient to the stage before", $.mul(steps, passed));
}
if (($.truth($.bound(run, "shape").tied_embeddings) && $.gt(layout.pipeline, 1n) && ($.truth(first) || $.truth(last)))) {
$.set_item(sent, "gradient of the tied embedding", $.mul(all_reduced($.mul(n.vocab, n.d_model), Term(2n)), run.gradient));
}
return sent;
});
const _data = $.fn(["run", "shape", "layout", "place"], function (run, shape, layout, place) {
let found, one, sent;
sent = $.dict([]);
for (const $$8 of $.iter(replicated(shape, layout, place))) {
one = $$8;
if ($.gt($.int(one.devices), 1n)) {
found = zero_traffic(one, run.weight, run.gradient, layout.zero, _micro_batches(layout));
sent = $.dict((() => { const $all = [];
for (const $$9 of $.iter($.method(found, "items")())) {
let name, size;
[name, size] = $.unpack($$9, 2n, -1n);
$all.push([name, ($.has(name, sent) ? $.add($.item(sent, name), size) : size)]);} return $all; })());
}
}
return sent;
});
return {Breakdown: () => Breakdown, Bytes: () => Bytes, DEFAULT: () => DEFAULT, Enum: () => Enum, FIRST: () => FIRST, FfnDimensions: () => FfnDimensions, ForwardPass: () => ForwardPass, Joins: () => Joins, LatentDimensions: () => LatentDimensions, Layout: () => Layout, Place: () => Place, Policy: () => Policy, Symbol: () => Symbol, Term: () => Term, Traffic: () => Traffic, TransformerShape: () => TransformerShape, _context: () => _context, _data: () => _data, _expert: () => _expert, _micro_batches: () => _micro_batches, _pipeline: () => _pipeline, _tensor: () => _tensor, added: () => added, all_reduced: () => all_reduced, dataclass: () => dataclass, device_forward_pass: () => device_forward_pass, device_traffic: () => device_traffic, ffn_layers: () => ffn_layers, replicated: () => replicated, replicated_parameters: () => replicated_parameters, zero_traffic: () => zero_traffic};
});
$.module("accounting.cluster.memory", () => {
let Breakdown, Bytes, Component, DEFAULT, FIRST, ForwardPass, GROUPS, Group, Item, Layout, MADE_ONCE, Moment, OF_A_PASS, Part, Phase, PhaseKind, Place, Policy, STATE_BYTES, Step, Symbol, Term, TransformerShape, added, breakdown, device_parameters, items, matrices, optimizer_state, overhead, phase, places, replace, replicated, saved_by_layers, shard, shard_of, sharded_bytes, step_temporaries, total_bytes, trained_tensors;

replace = $.libraries.dataclasses.replace;
Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");
device_parameters = $.from("accounting.cluster.device", "device_parameters");
replicated = $.from("accounting.cluster.device", "replicated");
FIRST = $.from("accounting.cluster.layout", "FIRST");
Layout = $.from("accounting.cluster.layout", "Layout");
Place = $.from("accounting.cluster.layout", "Place");
places = $.from("accounting.cluster.layout", "places");
shard = $.from("accounting.cluster.layout", "shard");
OF_A_PASS = $.from("accounting.cluster.zero", "OF_A_PASS");
Part = $.from("accounting.cluster.zero", "Part");
shard_of = $.from("accounting.cluster.zero", "shard_of");
sharded_bytes = $.from("accounting.cluster.zero", "sharded_bytes");
matrices = $.from("accounting.counting.parameters", "matrices");
trained_tensors = $.from("accounting.counting.parameters", "trained_tensors");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
ForwardPass = $.from("accounting.memory.activations", "ForwardPass");
saved_by_layers = $.from("accounting.memory.activations", "saved_by_layers");
optimizer_state = $.from("accounting.memory.optimizer_state", "optimizer_state");
step_temporaries = $.from("accounting.memory.optimizer_state", "step_temporaries");
MADE_ONCE = $.from("accounting.memory.records", "MADE_ONCE");
Component = $.from("accounting.memory.records", "Component");
Group = $.from("accounting.memory.records", "Group");
Item = $.from("accounting.memory.records", "Item");
Phase = $.from("accounting.memory.records", "Phase");
PhaseKind = $.from("accounting.memory.records", "PhaseKind");
items = $.from("accounting.memory.records", "items");
phase = $.from("accounting.memory.records", "phase");
total_bytes = $.from("accounting.memory.records", "total_bytes");
Moment = $.from("accounting.memory.training", "Moment");
Step = $.from("accounting.memory.training", "Step");
overhead = $.from("accounting.memory.training", "overhead");
DEFAULT = $.from("accounting.policy", "DEFAULT");
Policy = $.from("accounting.policy", "Policy");
TransformerShape = $.from("accounting.shape", "TransformerShape");
Bytes = $.from("accounting.units", "Bytes");
GROUPS = $.dict([[Part.PARAMETERS, Group.PARAMETERS], [Part.GATHERED, Group.PARAMETERS], [Part.GRADIENTS, Group.GRADIENTS], [Part.REDUCED, Group.GRADIENTS], [Part.OPTIMIZER_STATE, Group.OPTIMIZER_STATE]]);
STATE_BYTES = $.dict([["adamw", 8n], ["sgd", 4n]]);
const device_memory = $.fn(["shape", "layout", "place", "batch_size", "seq_len", "policy"], function (shape, layout, place = FIRST, batch_size = 1n, seq_len = null, policy = DEFAULT) {
let always, besides, last, moments, phases, run, state, stepping, waiting, words;
run = Step(device_forward_pass(shape, layout, place, batch_size, seq_len, policy));
last = $.eq(place.stage, $.sub(layout.pipeline, 1n));
if ($.truth(place.stage)) {
$.del_item(run.shared, Component.TOKEN_IDS);
}
state = _state(run, shape, layout, place);
[always, besides] = $.unpack([$.list($.method(state, "values")()), ($.truth(policy.overhead_bytes) ? $.as_list([overhead(policy)]) : $.as_list([]))], 2n, -1n);
moments = $.as_list([...$.iter(($.truth(last) ? run.losses() : $.as_list([]))), ...$.iter(run.blocks())]);
if (($.eq(place.stage, 0n) && !$.truth(run.frozen))) {
$.method(moments, "append")($.call_method(run, "embedding_backward", [], {tied: $.and($.bound(run, "shape").tied_embeddings, () => last)}));
}
waiting = $.call(_in_flight, [run, layout, place], {last: last});
words = [$.format(policy.optimizer, "", ""), ", ", $.format(policy.optimizer_step, "", ""), " step; ", $.format(policy.description, "", ""), "; ", $.format(layout.in_flight(place.stage), "", ""), " micro-batches in flight; no allocator's rounding, no buffers of collectives"].join('');
phases = $.as_list((() => { const $all = [];
for (const $$1 of $.iter(moments)) {
let one;
one = $$1;
$all.push($.call(phase, [one.title, $.bound(one, "kind"), $.as_list([...$.iter(always), ...$.iter(besides), _newest(run, one), ...$.iter(waiting), ...$.iter(one.alive)]), words], {place: place.words}));} return $all; })());
stepping = $.as_list([...$.iter((() => { const $all = [];
for (const $$2 of $.iter($.method(state, "items")())) {
let item, part;
[part, item] = $.unpack($$2, 2n, -1n);
if (!($.hasnt(part, OF_A_PASS))) continue;
$all.push(item);} return $all; })()), ...$.iter(besides)]);
$.method(stepping, "append")(Item("temporaries", Group.TEMPORARY, _step_temporaries(run, shape, layout, place)));
$.method(phases, "append")($.call(phase, ["optimizer step", PhaseKind.OPTIMIZER_STEP, stepping, words], {place: place.words}));
return $.call($.max, [phases], {key: ((one) => $.int(one.total))});
});
const fullest = $.fn(["shape", "layout", "batch_size", "seq_len", "policy"], function (shape, layout, batch_size = 1n, seq_len = null, policy = DEFAULT) {
let alike, found;
alike = $.dict((() => { const $all = [];
for (const $$3 of $.iter(places(layout))) {
let place;
place = $$3;
$all.push([[place.stage, shard(shape, layout, place)], place]);} return $all; })());
found = (() => { const $all = [];
for (const $$4 of $.iter($.method(alike, "values")())) {
let place;
place = $$4;
$all.push($.call(device_memory, [shape, layout, place, batch_size, seq_len], {policy: policy}));} return $all; })();
return $.call($.max, [found], {key: ((one) => $.int(one.total))});
});
const device_forward_pass = $.fn(["shape", "layout", "place", "batch_size", "seq_len", "policy"], function (shape, layout, place, batch_size, seq_len, policy) {
let accumulating, mine, shards;
if (($.hasnt(policy.optimizer, STATE_BYTES) && !($.eq(layout.tensor, layout.pipeline) && $.eq(layout.pipeline, 1n)))) {
throw $.ValueError(["optimizer ", $.format(policy.optimizer, "r", ""), " goes by whole tensors, and here several devices share them: use one of ", $.format($.method(", ", "join")(STATE_BYTES), "", "")].join(''));
}
if ($.ne(policy.allocator, "exact")) {
throw $.ValueError(["allocator ", $.format(policy.allocator, "r", ""), " is counted of one device alone: use 'exact'"].join(''));
}
mine = shard(shape, layout, place);
accumulating = $.call(replace, [policy], {gradient_accumulation: true});
shards = ($.truth(layout.sequence_parallel) ? layout.tensor : 1n);
return ForwardPass(mine, batch_size, shape.sequence(seq_len), accumulating, shards, layout.context);
});
const _state = $.fn(["run", "shape", "layout", "place"], function (run, shape, layout, place) {
let at, each, kept, layers, one, part, policy, rank, size, sizes, whole;
[policy, kept] = $.unpack([run.policy, Term(0n)], 2n, -1n);
sizes = $.dict([]);
[rank, layers] = $.unpack([place.data_rank, $.bound(run, "shape").num_layers], 2n, -1n);
for (const $$5 of $.iter(replicated(shape, layout, place))) {
one = $$5;
at = $.mod(rank, $.int(one.devices));
for (const $$6 of $.iter($.method(sharded_bytes(one, run.weight, run.run.gradient, layout.zero, layers, at), "items")())) {
[part, size] = $.unpack($$6, 2n, -1n);
$.set_item(sizes, part, ($.has(part, sizes) ? $.add($.item(sizes, part), size) : size));
}
if ($.has(policy.optimizer, STATE_BYTES)) {
each = $.add($.item(STATE_BYTES, policy.optimizer), $.mul(4n, policy.bytes.master_weights));
kept = $.add(kept, $.mul(each, ($.truth(layout.zero) ? shard_of(one.trained, one.devices, at) : one.trained)));
}
}
if ($.hasnt(policy.optimizer, STATE_BYTES)) {
if ($.gt(layout.expert, 1n)) {
throw $.ValueError(["optimizer ", $.format(policy.optimizer, "r", ""), " is not counted where experts are shared: use adamw or sgd"].join(''));
}
whole = added((() => { const $all = [];
for (const $$7 of $.iter($.call(optimizer_state, [$.bound(run, "shape")], {policy: policy}).terms)) {
let _, term;
[_, term] = $.unpack($$7, 2n, -1n);
$all.push(term);} return $all; })());
kept = ($.truth(layout.zero) ? shard_of(whole, Symbol("dp", layout.replicas), rank) : whole);
}
$.set_item(sizes, Part.OPTIMIZER_STATE, kept);
return $.dict((() => { const $all = [];
for (const $$8 of $.iter($.method(sizes, "items")())) {
let part, size;
[part, size] = $.unpack($$8, 2n, -1n);
$all.push([part, Item(part.value, $.item(GROUPS, part), $.as_list([[1n, size]]))]);} return $all; })());
});
const _newest = $.fn(["run", "moment"], function (run, moment) {
let beside;
beside = $.add($.sub($.int($.bound(moment, "gradients").finished), $.mul($.int(run.trained), $.int(run.run.gradient))), $.int($.bound(moment, "gradients").newest));
return Item("newest gradient", Group.GRADIENTS, ($.truth(beside) ? $.as_list([[1n, Symbol("newest_gradient", beside)]]) : $.as_list([])));
});
const _in_flight = $.fn(["run", "layout", "place", "last"], function (run, layout, place, last) {
let of_blocks, others, saved, waiting;
others = Symbol("in_flight", $.sub(layout.in_flight(place.stage), 1n));
of_blocks = saved_by_layers(run.run, run.run.stack.counts);
saved = $.bitor($.dict((() => { const $all = [];
for (const $$9 of $.iter($.method(run.shared, "items")())) {
let found, one;
[one, found] = $.unpack($$9, 2n, -1n);
if (!($.hasnt(one, MADE_ONCE))) continue;
$all.push([one, found]);} return $all; })()), of_blocks);
if ($.truth(last)) {
saved = $.bitor(saved, run.head);
}
waiting = items(Group.IN_FLIGHT, saved);
return $.as_list((() => { const $all = [];
for (const $$10 of $.iter(waiting)) {
let item;
item = $$10;
$all.push(Item(item.name, item.group, $.as_list([[1n, $.mul(others, total_bytes(item.tensors))]])));} return $all; })());
});
const _step_temporaries = $.fn(["run", "shape", "layout", "place"], function (run, shape, layout, place) {
let held, largest, of_device, policy, share, sizes;
[policy, held] = $.unpack([run.policy, device_parameters(shape, layout, place)], 2n, -1n);
of_device = replicated(shape, layout, place);
if (($.eq(policy.optimizer_step, "fused") || $.hasnt(policy.optimizer, STATE_BYTES))) {
return step_temporaries($.bound(run, "shape"), policy);
}
share = added((() => { const $all = [];
for (const $$11 of $.iter(of_device)) {
let one;
one = $$11;
$all.push(($.truth(layout.zero) ? shard_of(one.trained, one.devices) : one.trained));} return $all; })());
if ($.eq(policy.optimizer_step, "foreach")) {
return $.as_list([[1n, $.mul(4n, share)]]);
}
if ($.truth(run.frozen)) {
sizes = $.as_list((() => { const $all = [];
for (const $$12 of $.iter(trained_tensors($.bound(run, "shape")))) {
let _, size;
[_, size] = $.unpack($$12, 2n, -1n);
$all.push(size);} return $all; })());
} else {
sizes = $.as_list((() => { const $all = [];
for (const $$13 of $.iter(matrices($.bound(run, "shape")))) {
let columns, rows;
[rows, columns] = $.unpack($$13, 2n, -1n);
$all.push($.mul(rows, columns));} return $all; })());
sizes = $.iadd(sizes, $.as_list((() => { const $all = [];
for (const $$14 of $.iter(["embedding", "positions", "head"])) {
let name;
name = $$14;
$all.push($.int($.item(held, name)));} return $all; })()));
}
largest = Symbol("largest_tensor", $.min($.int(share), $.max(sizes)));
return $.as_list([[($.eq(policy.optimizer, "adamw") ? 2n : 1n), $.mul(4n, largest)]]);
});
return {Breakdown: () => Breakdown, Bytes: () => Bytes, Component: () => Component, DEFAULT: () => DEFAULT, FIRST: () => FIRST, ForwardPass: () => ForwardPass, GROUPS: () => GROUPS, Group: () => Group, Item: () => Item, Layout: () => Layout, MADE_ONCE: () => MADE_ONCE, Moment: () => Moment, OF_A_PASS: () => OF_A_PASS, Part: () => Part, Phase: () => Phase, PhaseKind: () => PhaseKind, Place: () => Place, Policy: () => Policy, STATE_BYTES: () => STATE_BYTES, Step: () => Step, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, _in_flight: () => _in_flight, _newest: () => _newest, _state: () => _state, _step_temporaries: () => _step_temporaries, added: () => added, breakdown: () => breakdown, device_forward_pass: () => device_forward_pass, device_memory: () => device_memory, device_parameters: () => device_parameters, fullest: () => fullest, items: () => items, matrices: () => matrices, optimizer_state: () => optimizer_state, overhead: () => overhead, phase: () => phase, places: () => places, replace: () => replace, replicated: () => replicated, saved_by_layers: () => saved_by_layers, shard: () => shard, shard_of: () => shard_of, sharded_bytes: () => sharded_bytes, step_temporaries: () => step_temporaries, total_bytes: () => total_bytes, trained_tensors: () => trained_tensors};
});
$.module("accounting.memory.training", () => {
let BLOCK, Bytes, Component, Count, DEFAULT, FfnDimensions, ForwardPass, Gradients, Group, Item, Iterator, Kind, LatentDimensions, Mapping, Moment, OF_FFN, OF_FFN_MATRICES, Phase, PhaseKind, Policy, Step, Symbol, Term, TransformerShape, adapted, adapter_elements, added, attention_matrices, block_parameters, block_tensors, copies_of_heads, dataclass, head_tensors, human, items, masks, optimizer_state, parameters, phase, plain_bytes, rank_of, saved_by_block, saved_by_layers, scores_in_blocks, shared_tensors, state_tensors, step_temporaries, temporary, tensors, trained_symbol, trained_tensors, waste;

Iterator = $.libraries.collections_abc.Iterator;
Mapping = $.libraries.collections_abc.Mapping;
dataclass = $.libraries.dataclasses.dataclass;
OF_FFN_MATRICES = $.from("accounting.counting.adapters", "OF_FFN_MATRICES");
adapted = $.from("accounting.counting.adapters", "adapted");
adapter_elements = $.from("accounting.counting.adapters", "adapter_elements");
rank_of = $.from("accounting.counting.adapters", "rank_of");
FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
LatentDimensions = $.from("accounting.counting.dimensions", "LatentDimensions");
attention_matrices = $.from("accounting.counting.dimensions", "attention_matrices");
block_parameters = $.from("accounting.counting.parameters", "block_parameters");
parameters = $.from("accounting.counting.parameters", "parameters");
tensors = $.from("accounting.counting.parameters", "tensors");
trained_symbol = $.from("accounting.counting.parameters", "trained_symbol");
trained_tensors = $.from("accounting.counting.parameters", "trained_tensors");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
ForwardPass = $.from("accounting.memory.activations", "ForwardPass");
block_tensors = $.from("accounting.memory.activations", "block_tensors");
copies_of_heads = $.from("accounting.memory.activations", "copies_of_heads");
head_tensors = $.from("accounting.memory.activations", "head_tensors");
saved_by_block = $.from("accounting.memory.activations", "saved_by_block");
saved_by_layers = $.from("accounting.memory.activations", "saved_by_layers");
scores_in_blocks = $.from("accounting.memory.activations", "scores_in_blocks");
shared_tensors = $.from("accounting.memory.activations", "shared_tensors");
BLOCK = $.from("accounting.memory.allocator", "BLOCK");
waste = $.from("accounting.memory.allocator", "waste");
optimizer_state = $.from("accounting.memory.optimizer_state", "optimizer_state");
state_tensors = $.from("accounting.memory.optimizer_state", "state_tensors");
step_temporaries = $.from("accounting.memory.optimizer_state", "step_temporaries");
OF_FFN = $.from("accounting.memory.records", "OF_FFN");
Component = $.from("accounting.memory.records", "Component");
Group = $.from("accounting.memory.records", "Group");
Item = $.from("accounting.memory.records", "Item");
Phase = $.from("accounting.memory.records", "Phase");
PhaseKind = $.from("accounting.memory.records", "PhaseKind");
items = $.from("accounting.memory.records", "items");
phase = $.from("accounting.memory.records", "phase");
plain_bytes = $.from("accounting.memory.records", "plain_bytes");
temporary = $.from("accounting.memory.records", "temporary");
masks = $.from("accounting.memory.transformers_blocks", "masks");
DEFAULT = $.from("accounting.policy", "DEFAULT");
Policy = $.from("accounting.policy", "Policy");
Kind = $.from("accounting.shape", "Kind");
TransformerShape = $.from("accounting.shape", "TransformerShape");
Bytes = $.from("accounting.units", "Bytes");
Count = $.from("accounting.units", "Count");
human = $.from("accounting.units", "human");
Gradients = $.class("Gradients", [], true, [["finished", undefined, false], ["newest", undefined, false], ["tensors", undefined, false]], [

]);
Moment = $.class("Moment", [], true, [["title", undefined, false], ["kind", undefined, false], ["gradients", undefined, false], ["alive", undefined, false]], [

]);
const training_peak = $.fn(["shape", "batch_size", "seq_len", "policy"], function (shape, batch_size, seq_len = null, policy = DEFAULT) {
let found;
found = _alive(shape, batch_size, seq_len, policy);
return $.max((() => { const $all = [];
for (const $$2 of $.iter(found)) {
let _, alive;
[_, alive] = $.unpack($$2, 2n, -1n);
$all.push($.sum((() => { const $all = [];
for (const $$1 of $.iter(alive)) {
let item;
item = $$1;
$all.push(plain_bytes(item.tensors));} return $all; })()));} return $all; })());
});
const _alive = $.fn(["shape", "batch_size", "seq_len", "policy"], function (shape, batch_size, seq_len, policy) {
let alive, always, bottom, counters, found, gradients, held, moment, rounded, run, states;
run = Step(ForwardPass(shape, batch_size, seq_len, policy));
states = added((() => { const $all = [];
for (const $$3 of $.iter($.call(optimizer_state, [shape], {policy: policy}).terms)) {
let _, term;
[_, term] = $.unpack($$3, 2n, -1n);
$all.push(term);} return $all; })());
held = $.as_list([...$.iter(run.weights), ...$.iter(state_tensors(shape, policy))]);
counters = Term(0n);
if ($.truth($.method(policy.optimizer, "startswith")("adamw"))) {
counters = Symbol("n_tensors", $.sum((() => { const $all = [];
for (const $$4 of $.iter(trained_tensors(shape))) {
let _, count;
[count, _] = $.unpack($$4, 2n, -1n);
$all.push(count);} return $all; })()));
}
always = $.as_list([Item("parameters", Group.PARAMETERS, $.as_list([[1n, $.mul(run.params, run.weight)]])), Item("optimizer state", Group.OPTIMIZER_STATE, $.as_list([[1n, states]]))]);
found = $.as_list([]);
bottom = ($.truth(run.frozen) ? $.as_list([]) : $.as_list([$.call_method(run, "embedding_backward", [], {tied: shape.tied_embeddings})]));
for (const $$5 of $.iter($.as_list([...$.iter(run.losses()), ...$.iter(run.blocks()), ...$.iter(bottom), run.stepping()]))) {
moment = $$5;
gradients = $.bound(moment, "gradients");
alive = $.as_list([...$.iter(always), Item("gradients", Group.GRADIENTS, $.as_list([[1n, gradients.finished], [1n, gradients.newest]])), ...$.iter(moment.alive)]);
if ($.truth(policy.overhead_bytes)) {
$.method(alive, "append")(overhead(policy));
}
if ($.eq(policy.allocator, "cuda")) {
rounded = $.as_list([...$.iter(held), ...$.iter(gradients.tensors), ...$.iter((() => { const $all = [];
for (const $$6 of $.iter(moment.alive)) {
let item;
item = $$6;
for (const $$7 of $.iter(item.tensors)) {
let one;
one = $$7;
$all.push(one);}} return $all; })())]);
$.method(alive, "append")(Item("allocator rounding", Group.ALLOCATOR, $.as_list([[1n, $.add($.mul(BLOCK, counters), waste(rounded))]])));
}
$.method(found, "append")([moment, alive]);
}
return found;
});
const overhead = $.fn(["policy"], function (policy) {
return Item("fixed overhead", Group.OVERHEAD, $.as_list([[1n, Symbol("overhead_bytes", policy.overhead_bytes)]]));
});
Step = $.class("Step", [], false, [], [
["method", "__init__", $.fn(["run"], function (run) {
const self = this;
let counted;
[self.run, self.shape, self.policy, self.n] = $.unpack([run, $.bound(run, "shape"), run.policy, run.n], 4n, -1n);
self.weight = run.weight;
counted = parameters($.bound(self, "shape"));
self.params = Symbol("n_params", $.int(counted.total));
self.frozen = $.isnt($.bound(self, "shape").lora_rank, null);
self.trained = ($.truth(self.frozen) ? trained_symbol($.bound(self, "shape")) : self.params);
self.embedding_matrix = $.mul(self.n.vocab, self.n.d_model);
self.weights = $.as_list((() => { const $all = [];
for (const $$8 of $.iter(tensors($.bound(self, "shape")))) {
let count, size;
[count, size] = $.unpack($$8, 2n, -1n);
$all.push([count, $.mul(size, self.weight)]);} return $all; })());
self.buffers = $.as_list((() => { const $all = [];
for (const $$9 of $.iter(trained_tensors($.bound(self, "shape")))) {
let count, size;
[count, size] = $.unpack($$9, 2n, -1n);
$all.push([count, $.mul(size, run.gradient)]);} return $all; })());
self.whole_block = $.dict((() => { const $all = [];
for (const $$10 of $.iter(run.stack.counts)) {
let kind;
kind = $$10;
$all.push([kind, block_tensors(run, kind)]);} return $all; })());
self.head = head_tensors(run);
self.shared = shared_tensors(run);
self.materialises_scores = $.ne(self.policy.attention_kernel, "fused");
if (($.truth(self.materialises_scores) && !$.truth(self.run.transformers))) {
$.set_item(self.shared, Component.MASK, $.as_list([[1n, $.mul($.mul(run.queries, run.seq), run.act)]]));
}
})],
["property", "hidden", $.fn([], function () {
const self = this;
return [1n, $.mul($.mul(self.run.tokens, self.n.d_model), self.run.residual)];
})],
["method", "trained_in", $.fn(["kind"], function (kind) {
const self = this;
let attention, ffn, prefix, several;
if ($.truth(self.frozen)) {
return [$.call(adapter_elements, [$.bound(self, "shape"), 1n], {of_ffn: false}), $.call(adapter_elements, [$.bound(self, "shape"), 1n], {of_ffn: true})];
}
[attention, ffn] = $.unpack(block_parameters($.bound(self, "shape"), kind), 2n, -1n);
several = $.gt($.len($.bound(self, "shape").ffns), 1n);
prefix = ($.truth(several) ? [$.format(($.is($.bound(kind, "ffn").experts, null) ? "dense" : "expert"), "", ""), "_"].join('') : "");
return [Symbol("attention_params", attention), Symbol([$.format(prefix, "", ""), "ffn_params"].join(''), ffn)];
})],
["method", "gradients", $.fn(["finished", "newest", "blocks"], function (finished, newest, blocks = 0n) {
const self = this;
let layers, one, whole;
one = Term(0n);
if ($.truth(newest)) {
one = ($.truth(self._autocast) ? $.add($.mul(newest, self.weight), $.mul(newest, self.run.act)) : $.mul(newest, self.weight));
}
if ($.truth(self.policy.accumulates)) {
return Gradients($.mul(self.trained, self.run.gradient), one, self.buffers);
}
layers = $.bound(self, "shape").num_layers;
whole = $.as_list((() => { const $all = [];
for (const $$11 of $.iter(self.buffers)) {
let count, size;
[count, size] = $.unpack($$11, 2n, -1n);
if (!($.ge(count, layers))) continue;
$all.push([$.floordiv($.mul($.int(count), blocks), layers), size]);} return $all; })());
return Gradients(($.truth(finished) ? $.mul(finished, self.run.gradient) : Term(0n)), one, whole);
})],
["property", "_autocast", $.fn([], function () {
const self = this;
return $.eq(self.policy.precision, "autocast");
})],
["method", "losses", $.fn([], function () {
const self = this;
let after, before, chunks, copies, head, head_gradients, in_fp32, logits, loss, loss_gradients, n, newest, none, nothing, of_block, run, scaled, wide;
[none, n, run] = $.unpack([Term(0n), self.n, self.run], 3n, -1n);
head = $.dict((() => { const $all = [];
for (const $$12 of $.iter($.method(self.head, "items")())) {
let found, one;
[one, found] = $.unpack($$12, 2n, -1n);
if (!($.isnt(one, Component.LOSS))) continue;
$all.push([one, found]);} return $all; })());
before = $.as_list([...$.iter(self.saved(run.stack.counts)), ...$.iter(items(Group.SAVED, head))]);
after = $.as_list([...$.iter(before), ...$.iter(items(Group.SAVED, $.dict([[Component.LOSS, $.item(self.head, Component.LOSS)]])))]);
copies = $.as_list([]);
if (($.truth(self._autocast) && $.eq(self.policy.activation_checkpointing, "full"))) {
[of_block] = $.unpack((() => { const $all = [];
for (const $$13 of $.iter($.method(self.whole_block, "values")())) {
let block;
block = $$13;
$all.push($.item(block, Component.WEIGHTS_IN_BF16));} return $all; })(), 1n, -1n);
$.method(copies, "append")(temporary("weights in bf16", ...$.iter((() => { const $all = [];
for (const $$14 of $.iter(of_block)) {
let count, size;
[count, size] = $.unpack($$14, 2n, -1n);
$all.push([$.mul(n.n_layers, count), size]);} return $all; })())));
}
if (($.truth(self._autocast) && $.eq(self.policy.loss, "chunked"))) {
$.method(copies, "append")(temporary("head in bf16", [1n, $.mul(2n, self.embedding_matrix)]));
}
nothing = self.gradients(none, none);
if ($.eq(self.policy.loss, "chunked")) {
scaled = Gradients($.add(nothing.finished, $.mul(self.embedding_matrix, self.weight)), nothing.newest, $.as_list([...$.iter(nothing.tensors), [1n, $.mul(self.embedding_matrix, self.weight)]]));
chunks = temporary("chunks of logits", ...$.iter(self._chunks()));
loss = $.as_list([...$.iter(after), ...$.iter(copies), temporary("hidden state", self.hidden), chunks]);
return $.as_list([Moment("loss", PhaseKind.FORWARD, nothing, loss), Moment("backward of the loss", PhaseKind.BACKWARD, scaled, $.as_list([...$.iter(after), temporary("hidden gradient", self.hidden)]))]);
}
logits = [1n, $.mul($.mul(run.tokens, n.vocab), run.act)];
wide = $.mul(4n, $.mul(run.tokens, run.loss_vocab));
in_fp32 = temporary("logits in fp32", ...$.iter(($.truth(run.narrow) ? $.as_list([[1n, wide]]) : $.as_list([]))));
loss_gradients = $.as_list([...$.iter(after), temporary("gradients of logits", [2n, wide])]);
head_gradients = $.as_list([...$.iter(before), temporary("gradients of logits", logits), temporary("hidden gradient", self.hidden)]);
newest = self.gradients(none, ($.truth(self.frozen) ? none : self.embedding_matrix));
return $.as_list([Moment("forward", PhaseKind.FORWARD, nothing, $.as_list([...$.iter(before), ...$.iter(copies), temporary("logits", logits)])), Moment("loss", PhaseKind.FORWARD, nothing, $.as_list([...$.iter(after), ...$.iter(copies), temporary("logits", logits), in_fp32])), Moment("backward of the loss", PhaseKind.BACKWARD, nothing, loss_gradients), Moment("backward of the head", PhaseKind.BACKWARD, newest, head_gradients)]);
})],
["method", "_chunks", $.fn([], function () {
const self = this;
let chunk, in_fp32, n, narrow, products, rows, run;
[run, n] = $.unpack([self.run, self.n], 2n, -1n);
chunk = $.min($.int(run.tokens), $.max(1n, $.floordiv(self.policy.logits_chunk_bytes, $.mul(4n, $.bound(self, "shape").vocab_rows))));
rows = Symbol("chunk_rows", chunk);
[in_fp32, narrow] = $.unpack([[1n, $.mul(4n, $.mul(rows, n.vocab))], [1n, $.mul($.mul(rows, n.vocab), run.act)]], 2n, -1n);
products = $.as_list([[1n, $.mul($.mul(n.vocab, n.d_model), run.act)], [1n, $.mul($.mul(rows, n.d_model), run.act)]]);
if ($.eq(self.policy.loss_kernel, "fused")) {
return ($.truth(self._autocast) ? $.as_list([narrow, ...$.iter(products)]) : $.as_list([narrow]));
}
return ($.truth(run.narrow) ? $.as_list([in_fp32, narrow, ...$.iter(products)]) : $.as_list([in_fp32]));
})],
["method", "blocks", $.fn([], function () {
const self = this;
let above, attention, below, bottom, count, done, ffn, finished, kind, moments, n, name, run, saved, shape, sizes, trained, under;
[shape, n, run] = $.unpack([$.bound(self, "shape"), self.n, self.run], 3n, -1n);
attention = temporary("gradients of activations", self.hidden, ...$.iter(self._attention_gradients()));
bottom = ($.truth(shape.tied_embeddings) ? Term(0n) : self.embedding_matrix);
if ($.eq(shape.position, "learned")) {
bottom = $.add(bottom, $.mul(n.max_seq, n.d_model));
}
trained = $.dict((() => { const $all = [];
for (const $$15 of $.iter(run.stack.counts)) {
let kind;
kind = $$15;
$all.push([kind, self.trained_in(kind)]);} return $all; })());
sizes = $.dict((() => { const $all = [];
for (const $$16 of $.iter($.method(trained, "items")())) {
let kind, of_attention, of_ffn;
[kind, [of_attention, of_ffn]] = $.unpack($$16, 2n, -1n);
$all.push([kind, $.add(of_ffn, of_attention)]);} return $all; })());
above = $.sub(self.params, bottom);
if ($.truth(self.frozen)) {
above = added((() => { const $all = [];
for (const $$17 of $.iter($.method(run.stack.counts, "items")())) {
let count, kind;
[kind, count] = $.unpack($$17, 2n, -1n);
$all.push($.mul(count, $.item(sizes, kind)));} return $all; })());
}
finished = ($.truth(self.frozen) ? Term(0n) : self.embedding_matrix);
moments = $.as_list([]);
for (const $$18 of $.iter(run.stack.ends)) {
[name, kind, below] = $.unpack($$18, 3n, -1n);
done = $.sub($.sub(shape.num_layers, 1n), $.sum((() => { const $all = [];
for (const $$19 of $.iter($.method(below, "values")())) {
let count;
count = $$19;
$all.push($.int(count));} return $all; })()));
if ($.truth(done)) {
finished = $.sub(above, $.item(sizes, kind));
for (const $$20 of $.iter($.method(below, "items")())) {
[under, count] = $.unpack($$20, 2n, -1n);
finished = ($.truth(count) ? $.sub(finished, $.mul(count, $.item(sizes, under))) : finished);
}
}
saved = self.saved(below, kind);
ffn = temporary("gradients of activations", self.hidden, self._ffn_gradients(kind));
moments = $.iadd(moments, $.as_list([Moment(["backward of the ", $.format(name, "", ""), " block, ffn"].join(''), PhaseKind.BACKWARD, self.gradients(finished, $.call_method(self, "_newest", [kind], {of_ffn: true}), done), $.as_list([...$.iter(saved), ...$.iter(self._ffn_backward(kind)), ffn])), Moment(["backward of the ", $.format(name, "", ""), " block, attention"].join(''), PhaseKind.BACKWARD, self.gradients($.add(finished, $.item($.item(trained, kind), 1n)), $.call_method(self, "_newest", [kind], {of_ffn: false}), done), $.as_list([...$.iter(saved), ...$.iter(self._attention_backward(kind)), attention]))]));
}
return moments;
})],
["method", "_ffn_gradients", $.fn(["kind"], function (kind) {
const self = this;
let each, ffn, m, run, shape;
[shape, run, ffn] = $.unpack([$.bound(self, "shape"), self.run, $.bound(kind, "ffn")], 3n, -1n);
[m, each] = $.unpack([FfnDimensions(shape, ffn), (($.truth(shape.gated) || $.has("down", shape.adapted)) ? 2n : 1n)], 2n, -1n);
if ($.gt($.or(ffn.shared_d_ff, () => 0n), $.mul(ffn.active, kind.d_ff))) {
return [each, $.mul($.mul(run.tokens, m.shared_d_ff), run.act)];
}
return [$.mul(each, ffn.active), $.mul($.mul(run.tokens, m.d_ff), run.act)];
})],
["method", "_newest", $.fn(["kind", "of_ffn"], function (kind, of_ffn) {
const self = this;
let halves, n;
n = self.n;
if (!$.truth(self.frozen)) {
if ($.truth(of_ffn)) {
return $.mul(n.d_model, FfnDimensions($.bound(self, "shape"), $.bound(kind, "ffn")).d_ff);
}
return $.item($.list($.method(attention_matrices($.bound(self, "shape"), $.bound(kind, "attention")), "values")()), $.negative(1n));
}
halves = $.as_list((() => { const $all = [];
for (const $$21 of $.iter($.method(adapted($.bound(self, "shape")), "items")())) {
let _, into, name;
[name, [into, _]] = $.unpack($$21, 2n, -1n);
if (!($.eq($.has(name, OF_FFN_MATRICES), of_ffn))) continue;
$all.push($.mul(rank_of($.bound(self, "shape")), into));} return $all; })());
return ($.truth(halves) ? $.item(halves, $.negative(1n)) : Term(0n));
})],
["method", "_attention_gradients", $.fn([], function () {
const self = this;
let keys, m, most, n, of_query, of_value, queries, run;
[run, n] = $.unpack([self.run, self.n], 2n, -1n);
queries = $.mul($.mul(run.tokens, $.mul(n.n_heads, $.bound(n, "head_dim"))), run.act);
if ($.eq(self.policy.attention_kernel, "eager")) {
return $.as_list([[2n, $.mul($.mul($.mul($.mul(run.batch, n.n_heads), run.queries), run.seq), run.act)]]);
}
if ($.isnt($.bound(self, "shape").latent, null)) {
m = LatentDimensions($.bound(self, "shape").latent);
[of_query, of_value] = $.unpack([$.mul(n.n_heads, $.add(m.nope_dim, m.rope_dim)), $.mul(n.n_heads, m.value_dim)], 2n, -1n);
return $.as_list([[2n, $.mul($.mul(run.tokens, of_query), run.act)], [2n, $.mul($.mul(run.tokens, of_value), run.act)]]);
}
if ($.eq(self.policy.attention_kernel, "blocks")) {
most = Symbol("block_scores", $.max(scores_in_blocks($.int(run.seq), run.window)));
keys = $.mul($.mul($.mul(run.tokens, n.n_kv_heads), $.bound(n, "head_dim")), run.act);
return $.as_list([[1n, $.mul($.mul($.mul(run.batch, n.n_heads), most), run.act)], [1n, queries], [4n, keys]]);
}
return $.as_list([[3n, queries], [1n, $.mul($.mul(run.tokens, n.d_model), run.act)]]);
})],
["method", "embedding_backward", $.fn(["tied"], function (tied) {
const self = this;
let alive, gradients, matrix, newest, others, saved, second;
[matrix, saved] = $.unpack([self.embedding_matrix, items(Group.SAVED, self.shared)], 2n, -1n);
newest = $.mul(matrix, self.weight);
if ($.truth(tied)) {
second = temporary("second gradient", [1n, $.max($.item(self.hidden, 1n), newest)]);
[gradients, alive] = $.unpack([Gradients($.mul(self.params, self.run.gradient), newest, self.buffers), $.as_list([...$.iter(saved), second])], 2n, -1n);
} else {
others = ($.truth(self.policy.accumulates) ? self.params : $.sub(self.params, matrix));
gradients = Gradients($.mul(others, self.run.gradient), newest, self.buffers);
alive = $.as_list([...$.iter(saved), temporary("hidden gradient", self.hidden)]);
}
return Moment("backward of the embedding", PhaseKind.BACKWARD, gradients, alive);
})],
["method", "stepping", $.fn([], function () {
const self = this;
let alive, gradients;
gradients = Gradients($.mul(self.trained, self.run.gradient), Term(0n), self.buffers);
alive = temporary("temporaries", ...$.iter(step_temporaries($.bound(self, "shape"), self.policy)));
return Moment("optimizer step", PhaseKind.OPTIMIZER_STEP, gradients, $.as_list([alive]));
})],
["method", "saved", $.fn(["layers", "block"], function (layers, block = null) {
const self = this;
let shared;
shared = self.shared;
if ($.truth(self.run.transformers)) {
shared = $.dict([...$.entries(shared), [Component.MASK, masks(self.run, layers, block)]]);
}
return items(Group.SAVED, $.dict([...$.entries(shared), ...$.entries(saved_by_layers(self.run, layers))]));
})],
["method", "_ffn_backward", $.fn(["kind"], function (kind) {
const self = this;
let found, selective;
selective = $.eq(self.policy.activation_checkpointing, "selective");
found = ($.truth(selective) ? saved_by_block(self.run, kind) : $.item(self.whole_block, kind));
return $.as_list([...$.iter(items(Group.THIS_BLOCK, found)), ...$.iter(self._recomputed_input(kind))]);
})],
["method", "_attention_backward", $.fn(["kind"], function (kind) {
const self = this;
let again, found;
found = $.dict($.item(self.whole_block, kind));
if ($.eq(self.policy.activation_checkpointing, "selective")) {
again = $.item(found, Component.ATTENTION_WEIGHTS);
found = $.dict([...$.entries(saved_by_block(self.run, kind)), [Component.ATTENTION_WEIGHTS, again]]);
$.set_item(found, Component.QKV_COPIES, copies_of_heads(self.run, kind));
}
found = $.dict((() => { const $all = [];
for (const $$22 of $.iter($.method(found, "items")())) {
let one, tensors;
[one, tensors] = $.unpack($$22, 2n, -1n);
if (!($.hasnt(one, OF_FFN))) continue;
$all.push([one, tensors]);} return $all; })());
$.set_item(found, Component.NORMS, $.as_list((() => { const $all = [];
for (const $$23 of $.iter($.item(found, Component.NORMS))) {
let count, size;
[count, size] = $.unpack($$23, 2n, -1n);
$all.push([$.floordiv(count, 2n), size]);} return $all; })()));
if (($.truth(self.materialises_scores) && $.has(Component.ATTENTION_OUTPUT, found))) {
$.del_item(found, Component.ATTENTION_OUTPUT);
}
return $.as_list([...$.iter(items(Group.THIS_BLOCK, found)), ...$.iter(self._recomputed_input(kind))]);
})],
["method", "_recomputed_input", $.fn(["kind"], function (kind) {
const self = this;
let kernel, run, there;
if ($.ne(self.policy.activation_checkpointing, "full")) {
return $.as_list([]);
}
[run, kernel] = $.unpack([self.run, self.policy.norm_kernel], 2n, -1n);
if ($.eq($.bound(self, "shape").norm, "none")) {
there = $.eq($.int(run.act), $.int(run.residual));
} else {
there = $.or($.eq(kernel, "fused"), () => $.and($.eq(kernel, "composite"), () => $.eq($.int(run.residual), 4n)));
there = $.or(there, () => $.eq($.bound(self, "shape").norm, "layernorm"));
}
if ($.truth(there)) {
return $.as_list([]);
}
return $.as_list([Item("this block: input", Group.THIS_BLOCK, $.item(saved_by_block(run, kind), Component.BLOCK_INPUTS))]);
})]
]);
return {BLOCK: () => BLOCK, Bytes: () => Bytes, Component: () => Component, Count: () => Count, DEFAULT: () => DEFAULT, FfnDimensions: () => FfnDimensions, ForwardPass: () => ForwardPass, Gradients: () => Gradients, Group: () => Group, Item: () => Item, Iterator: () => Iterator, Kind: () => Kind, LatentDimensions: () => LatentDimensions, Mapping: () => Mapping, Moment: () => Moment, OF_FFN: () => OF_FFN, OF_FFN_MATRICES: () => OF_FFN_MATRICES, Phase: () => Phase, PhaseKind: () => PhaseKind, Policy: () => Policy, Step: () => Step, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, _alive: () => _alive, adapted: () => adapted, adapter_elements: () => adapter_elements, added: () => added, attention_matrices: () => attention_matrices, block_parameters: () => block_parameters, block_tensors: () => block_tensors, copies_of_heads: () => copies_of_heads, dataclass: () => dataclass, head_tensors: () => head_tensors, human: () => human, items: () => items, masks: () => masks, optimizer_state: () => optimizer_state, overhead: () => overhead, parameters: () => parameters, phase: () => phase, plain_bytes: () => plain_bytes, rank_of: () => rank_of, saved_by_block: () => saved_by_block, saved_by_layers: () => saved_by_layers, scores_in_blocks: () => scores_in_blocks, shared_tensors: () => shared_tensors, state_tensors: () => state_tensors, step_temporaries: () => step_temporaries, temporary: () => temporary, tensors: () => tensors, trained_symbol: () => trained_symbol, trained_tensors: () => trained_tensors, training_peak: () => training_peak, waste: () => waste};
});
$.module("accounting.memory.optimizer_state", () => {
let Breakdown, Bytes, DEFAULT, Policy, QUANTISED_BLOCK, QUANTISED_FROM, QUANTISED_MAPS, Symbol, Term, TransformerShape, breakdown, constant, matrices, no_muon_of_adapters, other_tensors, trained_symbol, trained_tensors;

Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");
no_muon_of_adapters = $.from("accounting.counting.adapters", "no_muon_of_adapters");
matrices = $.from("accounting.counting.parameters", "matrices");
other_tensors = $.from("accounting.counting.parameters", "other_tensors");
trained_symbol = $.from("accounting.counting.parameters", "trained_symbol");
trained_tensors = $.from("accounting.counting.parameters", "trained_tensors");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
constant = $.from("accounting.formula", "constant");
DEFAULT = $.from("accounting.policy", "DEFAULT");
Policy = $.from("accounting.policy", "Policy");
TransformerShape = $.from("accounting.shape", "TransformerShape");
Bytes = $.from("accounting.units", "Bytes");
QUANTISED_BLOCK = 256n;
QUANTISED_FROM = 4096n;
QUANTISED_MAPS = $.mul(2n, 256n);
const optimizer_state = $.fn(["shape", "policy"], function (shape, policy = DEFAULT) {
let large, moment, muon, optimizer, params, quantised, scales, terms, words;
optimizer = policy.optimizer;
no_muon_of_adapters(shape, optimizer);
params = trained_symbol(shape);

if ($.eq(optimizer, "sgd")) {
[terms, words] = $.unpack([$.dict([["momentum", $.mul(4n, params)]]), "SGD: one fp32 momentum"], 2n, -1n);
} else {
if ($.eq(optimizer, "adamw8bit")) {
large = $.as_list((() => { const $all = [];
for (const $$1 of $.iter(trained_tensors(shape))) {
let count, size;
[count, size] = $.unpack($$1, 2n, -1n);
if (!($.ge(size, QUANTISED_FROM))) continue;
$all.push([count, size]);} return $all; })());
quantised = Symbol("quantised_params", $.sum((() => { const $all = [];
for (const $$2 of $.iter(large)) {
let count, size;
[count, size] = $.unpack($$2, 2n, -1n);
$all.push($.mul(count, size));} return $all; })()));
scales = Symbol("scale_blocks", $.sum((() => { const $all = [];
for (const $$3 of $.iter(large)) {
let count, size;
[count, size] = $.unpack($$3, 2n, -1n);
$all.push($.mul(count, $.negative($.floordiv($.negative(size), QUANTISED_BLOCK))));} return $all; })()));
moment = $.add(quantised, $.mul(4n, $.sub(params, quantised)));
terms = $.dict([["first moment", moment], ["second moment", moment]]);
terms = $.bitor(terms, $.dict([["scales", $.mul($.mul(2n, 4n), scales)], ["tables", constant($.mul(4n, QUANTISED_MAPS))]]));
words = ["AdamW in 8 bits: two moments of a byte with one fp32 scale for ", $.format(QUANTISED_BLOCK, "", ""), " of each, in fp32 where a tensor has fewer than ", $.format(QUANTISED_FROM, "", [","].join('')), ", and two tables of what a byte means"].join('');
} else {
if ($.eq(optimizer, "muon")) {
muon = Symbol("muon_params", $.sum((() => { const $all = [];
for (const $$4 of $.iter($.method(matrices(shape), "items")())) {
let columns, count, rows;
[[rows, columns], count] = $.unpack($$4, 2n, -1n);
$all.push($.mul($.mul(rows, columns), count));} return $all; })()));
terms = $.dict([["momentum", $.mul(4n, muon)], ["first moment", $.mul(4n, $.sub(params, muon))], ["second moment", $.mul(4n, $.sub(params, muon))]]);
words = "Muon: one fp32 momentum for the matrices of the blocks, AdamW's two moments for the rest";
} else {
[terms, words] = $.unpack([$.dict([["first moment", $.mul(4n, params)], ["second moment", $.mul(4n, params)]]), "AdamW: two fp32 moments"], 2n, -1n);
}
}
}
if ($.truth(policy.bytes.master_weights)) {
$.set_item(terms, "master weights", $.mul(4n, params));
words = $.iadd(words, ", and fp32 master weights");
}
return breakdown("optimizer state", Bytes, terms, words);
});
const state_tensors = $.fn(["shape", "policy"], function (shape, policy) {
let count, found, optimizer, size;
optimizer = policy.optimizer;
found = $.as_list([]);
if ($.eq(optimizer, "muon")) {
found = $.iadd(found, $.as_list((() => { const $all = [];
for (const $$5 of $.iter($.method(matrices(shape), "items")())) {
let columns, count, rows;
[[rows, columns], count] = $.unpack($$5, 2n, -1n);
$all.push([count, $.mul($.mul(4n, rows), columns)]);} return $all; })()));
}
for (const $$6 of $.iter(($.eq(optimizer, "muon") ? other_tensors(shape) : trained_tensors(shape)))) {
[count, size] = $.unpack($$6, 2n, -1n);
if (($.eq(optimizer, "adamw8bit") && $.ge(size, QUANTISED_FROM))) {
found = $.iadd(found, $.as_list([[$.mul(2n, count), size], [$.mul(2n, count), $.mul(4n, $.negative($.floordiv($.negative(size), QUANTISED_BLOCK)))]]));
} else {
$.method(found, "append")([$.mul(($.eq(optimizer, "sgd") ? 1n : 2n), count), $.mul(4n, size)]);
}
}
return ($.truth(policy.bytes.master_weights) ? $.add(found, $.as_list((() => { const $all = [];
for (const $$7 of $.iter(trained_tensors(shape))) {
let count, size;
[count, size] = $.unpack($$7, 2n, -1n);
$all.push([count, $.mul(4n, size)]);} return $all; })())) : found);
});
const step_temporaries = $.fn(["shape", "policy"], function (shape, policy) {
let columns, largest, rows, sides;
if ($.eq(policy.optimizer, "muon")) {
sides = $.call($.max, [matrices(shape)], {key: ((size) => $.add($.mul($.mul(8n, $.item(size, 0n)), $.item(size, 1n)), $.mul(4n, $.pow($.item(size, 0n), 2n))))});
[rows, columns] = $.unpack([Symbol("matrix_rows", $.item(sides, 0n)), Symbol("matrix_columns", $.item(sides, 1n))], 2n, -1n);
return $.as_list([[1n, $.mul(4n, $.mul(rows, columns))], [2n, $.mul(2n, $.mul(rows, columns))], [2n, $.mul(2n, $.mul(rows, rows))]]);
}
if (($.eq(policy.optimizer_step, "fused") || $.eq(policy.optimizer, "adamw8bit"))) {
return $.as_list([]);
}
if ($.eq(policy.optimizer_step, "foreach")) {
return $.as_list([[1n, $.mul(4n, trained_symbol(shape))]]);
}
largest = Symbol("largest_tensor", $.max((() => { const $all = [];
for (const $$8 of $.iter(trained_tensors(shape))) {
let _, size;
[_, size] = $.unpack($$8, 2n, -1n);
$all.push(size);} return $all; })()));
return $.as_list([[($.eq(policy.optimizer, "sgd") ? 1n : 2n), $.mul(4n, largest)]]);
});
return {Breakdown: () => Breakdown, Bytes: () => Bytes, DEFAULT: () => DEFAULT, Policy: () => Policy, QUANTISED_BLOCK: () => QUANTISED_BLOCK, QUANTISED_FROM: () => QUANTISED_FROM, QUANTISED_MAPS: () => QUANTISED_MAPS, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, breakdown: () => breakdown, constant: () => constant, matrices: () => matrices, no_muon_of_adapters: () => no_muon_of_adapters, optimizer_state: () => optimizer_state, other_tensors: () => other_tensors, state_tensors: () => state_tensors, step_temporaries: () => step_temporaries, trained_symbol: () => trained_symbol, trained_tensors: () => trained_tensors};
});
$.module("accounting.memory.allocator", () => {
let BLOCK, KEPT_REMAINDER, OWN_SEGMENT, SEGMENT_MULTIPLE;

BLOCK = 512n;
OWN_SEGMENT = $.shift(10n, 20n);
SEGMENT_MULTIPLE = $.shift(2n, 20n);
KEPT_REMAINDER = $.shift(1n, 20n);
const block = $.fn(["size"], function (size) {
let rounded, segment;
rounded = $.mul($.negative($.floordiv($.negative(size), BLOCK)), BLOCK);
if ($.lt(rounded, OWN_SEGMENT)) {
return rounded;
}
segment = $.mul($.negative($.floordiv($.negative(rounded), SEGMENT_MULTIPLE)), SEGMENT_MULTIPLE);
return ($.le($.sub(segment, rounded), KEPT_REMAINDER) ? segment : rounded);
});
const waste = $.fn(["tensors"], function (tensors) {
return $.sum((() => { const $all = [];
for (const $$1 of $.iter(tensors)) {
let count, size;
[count, size] = $.unpack($$1, 2n, -1n);
$all.push($.mul($.int(count), $.sub(block($.int(size)), $.int(size))));} return $all; })());
});
return {BLOCK: () => BLOCK, KEPT_REMAINDER: () => KEPT_REMAINDER, OWN_SEGMENT: () => OWN_SEGMENT, SEGMENT_MULTIPLE: () => SEGMENT_MULTIPLE, block: () => block, waste: () => waste};
});
$.module("accounting.cluster.layout", () => {
let Attention, DeltaAttention, FIRST, Iterator, Layer, Layout, Place, TransformerShape, ZERO_STAGES, choose, dataclass, no_value_embeddings, positive, replace;

Iterator = $.libraries.collections_abc.Iterator;
dataclass = $.libraries.dataclasses.dataclass;
replace = $.libraries.dataclasses.replace;
ZERO_STAGES = $.from("accounting.cluster.zero", "ZERO_STAGES");
Attention = $.from("accounting.shape", "Attention");
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
Layer = $.from("accounting.shape", "Layer");
TransformerShape = $.from("accounting.shape", "TransformerShape");
choose = $.from("accounting.shape", "choose");
no_value_embeddings = $.from("accounting.shape", "no_value_embeddings");
positive = $.from("accounting.shape", "positive");
Layout = $.class("Layout", [], true, [["data", () => 1n, false], ["tensor", () => 1n, false], ["pipeline", () => 1n, false], ["zero", () => 0n, false], ["sequence_parallel", () => false, false], ["micro_batches", () => 1n, false], ["context", () => 1n, false], ["expert", () => 1n, false]], [
["method", "__post_init__", $.fn([], function () {
const self = this;
let name;
for (const $$1 of $.iter(["data", "tensor", "pipeline", "micro_batches", "context", "expert"])) {
name = $$1;
positive(name, $.getattr(self, name));
}
if (($.truth($.isinstance(self.zero, $.bool)) || !$.truth($.isinstance(self.zero, $.int)))) {
throw $.ValueError(["zero must be a whole number from 0 to 3, and ", $.format(self.zero, "r", ""), " is not"].join(''));
}
choose("zero", $.str(self.zero), ZERO_STAGES);
if ($.truth($.mod(self.replicas, self.expert))) {
throw $.ValueError(["expert ", $.format(self.expert, "", ""), " does not divide data × context ", $.format(self.replicas, "", ""), ": experts are shared by devices that would hold the same weights"].join(''));
}
})],
["property", "gpus", $.fn([], function () {
const self = this;
return $.mul($.mul(self.replicas, self.tensor), self.pipeline);
})],
["property", "replicas", $.fn([], function () {
const self = this;
return $.mul(self.data, self.context);
})],
["property", "words", $.fn([], function () {
const self = this;
let experts, product;
product = ["data ", $.format(self.data, "", ""), " × context ", $.format(self.context, "", ""), " × tensor ", $.format(self.tensor, "", ""), " × pipeline ", $.format(self.pipeline, "", "")].join('');
experts = ($.gt(self.expert, 1n) ? [", experts shared by ", $.format(self.expert, "", ""), " of data × context"].join('') : "");
return [$.format(product, "", ""), " = ", $.format(self.gpus, "", ""), " devices", $.format(experts, "", "")].join('');
})],
["method", "in_flight", $.fn(["stage"], function (stage) {
const self = this;
return $.min(self.micro_batches, $.sub(self.pipeline, stage));
})]
]);
Place = $.class("Place", [], true, [["stage", () => 0n, false], ["tensor_rank", () => 0n, false], ["data_rank", () => 0n, false]], [
["property", "words", $.fn([], function () {
const self = this;
return ["stage ", $.format(self.stage, "", ""), ", rank ", $.format(self.tensor_rank, "", "")].join('');
})]
]);
FIRST = Place();
const split = $.fn(["whole", "parts"], function (whole, parts) {
return $.as_list((() => { const $all = [];
for (const $$2 of $.iter($.range(parts))) {
let at;
at = $$2;
$all.push($.add($.floordiv(whole, parts), $.lt(at, $.mod(whole, parts))));} return $all; })());
});
const places = $.fn(["layout"], function (layout) {
return (() => { const $all = [];
for (const $$3 of $.iter($.range(layout.pipeline))) {
let stage;
stage = $$3;
for (const $$4 of $.iter($.range(layout.tensor))) {
let rank;
rank = $$4;
$all.push(Place(stage, rank));}} return $all; })();
});
const shard = $.fn(["shape", "layout", "place"], function (shape, layout, place) {
let after, at, before, delta, devices, fewest, group, heads, key, keys, kv, layers, leading, mine, most, name, own, pattern, rank, sharing, softmax, tensor, widths;
if ($.gt(layout.gpus, 1n)) {
no_value_embeddings(shape, "a device's share");
}
delta = $.as_list((() => { const $all = [];
for (const $$5 of $.iter(shape.attentions)) {
let one;
one = $$5;
if (!($.truth($.isinstance(one, DeltaAttention)))) continue;
$all.push(one);} return $all; })());
if (($.gt(layout.tensor, 1n) && $.truth(delta))) {
throw $.ValueError(["tensor ", $.format(layout.tensor, "", ""), ": shares of linear attention are not counted, use tensor 1"].join(''));
}
widths = $.as_list((() => { const $all = [];
for (const $$6 of $.iter(shape.ffns)) {
let one;
one = $$6;
for (const $$7 of $.iter([one.d_ff, one.shared_d_ff])) {
let size;
size = $$7;
if (!($.isnt(size, null))) continue;
$all.push(size);}} return $all; })());
for (const $$8 of $.iter([["num_heads", shape.num_heads], ["d_ff", $.min(widths)], ["vocabulary", shape.vocab_rows]])) {
[name, most] = $.unpack($$8, 2n, -1n);
if ($.gt(layout.tensor, most)) {
throw $.ValueError(["tensor ", $.format(layout.tensor, "", ""), " is more than ", $.format(name, "", ""), " ", $.format(most, "", ""), ": every device needs a share of it"].join(''));
}
}
if ($.gt(layout.pipeline, shape.num_layers)) {
throw $.ValueError(["pipeline ", $.format(layout.pipeline, "", ""), " is more than num_layers ", $.format(shape.num_layers, "", ""), ": every stage needs a layer"].join(''));
}
fewest = $.call($.min, [(() => { const $all = [];
for (const $$9 of $.iter(shape.ffns)) {
let one;
one = $$9;
if (!($.isnt(one.experts, null))) continue;
$all.push(one.experts);} return $all; })()], {default: 1n});
if ($.gt(layout.expert, fewest)) {
throw $.ValueError(["expert ", $.format(layout.expert, "", ""), " is more than experts ", $.format(fewest, "", ""), ": every device needs one"].join(''));
}
for (const $$10 of $.iter([["stage", place.stage, layout.pipeline], ["tensor_rank", place.tensor_rank, layout.tensor], ["data_rank", place.data_rank, layout.replicas]])) {
[name, at, devices] = $.unpack($$10, 3n, -1n);
if (($.truth($.isinstance(at, $.bool)) || !$.truth($.isinstance(at, $.int)) || !($.le(0n, at) && $.lt(at, devices)))) {
throw $.ValueError([$.format(name, "", ""), " must be a whole number of at least 0 and below ", $.format(devices, "", ""), ", and ", $.format(at, "r", ""), " is not"].join(''));
}
}
[group, kv] = $.unpack([$.floordiv(shape.num_heads, $.bound(shape, "kv_heads")), $.bound(shape, "kv_heads")], 2n, -1n);
if ($.le(layout.tensor, kv)) {
keys = $.item(split(kv, layout.tensor), place.tensor_rank);
heads = $.mul(keys, group);
} else {
key = $.floordiv($.mul(place.tensor_rank, kv), layout.tensor);
sharing = $.as_list((() => { const $all = [];
for (const $$11 of $.iter($.range(layout.tensor))) {
let rank;
rank = $$11;
if (!($.eq($.floordiv($.mul(rank, kv), layout.tensor), key))) continue;
$all.push(rank);} return $all; })());
[keys, heads] = $.unpack([1n, $.item(split(group, $.len(sharing)), $.method(sharing, "index")(place.tensor_rank))], 2n, -1n);
}
layers = split(shape.num_layers, layout.pipeline);
before = $.sum($.slice(layers, null, place.stage));
after = $.add(before, $.item(layers, place.stage));
[rank, tensor] = $.unpack([place.tensor_rank, layout.tensor], 2n, -1n);
const part = $.fn(["size"], function (size) {
return ($.is(size, null) ? null : $.item(split(size, tensor), rank));
});
const layer = $.fn(["one"], function (one) {
let experts_held, ffn, share, width;
if (($.is($.bound(one, "ffn"), null) && ($.eq(layout.expert, 1n) || $.is(shape.experts, null)))) {
return one;
}
ffn = $.bound(shape.kind(one), "ffn");
experts_held = ffn.experts_held;
if (($.gt(layout.expert, 1n) && $.isnt(ffn.experts, null))) {
experts_held = $.item(split(ffn.held, layout.expert), 0n);
}
width = ($.is($.bound(one, "ffn"), null) ? ffn.d_ff : $.bound(one, "ffn").d_ff);
share = $.call(replace, [ffn], {d_ff: part(width), shared_d_ff: part(ffn.shared_d_ff), experts_held: experts_held});
return Layer($.bound(one, "attention"), share);
});
mine = shape.between(before, after);
[leading, pattern] = $.unpack([$.tuple($.map(layer, mine.leading)), $.tuple($.map(layer, mine.layers))], 2n, -1n);
own = $.any((() => { const $all = [];
for (const $$12 of $.iter([...$.iter(leading), ...$.iter(pattern)])) {
let one;
one = $$12;
$all.push($.is($.bound(one, "ffn"), null));} return $all; })());
softmax = $.any((() => { const $all = [];
for (const $$13 of $.iter(mine.attentions)) {
let one;
one = $$13;
$all.push($.isinstance(one, Attention));} return $all; })());
return $.call(replace, [mine], {vocab_size: $.item(split(shape.vocab_rows, tensor), rank), vocab_multiple: 1n, num_heads: heads, num_kv_heads: ($.truth(softmax) ? keys : null), head_dim: ($.truth(softmax) ? shape.head_width : null), d_ff: ($.le(tensor, shape.d_ff) ? $.item(split(shape.d_ff, tensor), rank) : shape.d_ff), experts: ($.truth(own) ? shape.experts : null), experts_per_token: ($.truth(own) ? shape.experts_per_token : null), leading: leading, layers: pattern});
});
return {Attention: () => Attention, DeltaAttention: () => DeltaAttention, FIRST: () => FIRST, Iterator: () => Iterator, Layer: () => Layer, Layout: () => Layout, Place: () => Place, TransformerShape: () => TransformerShape, ZERO_STAGES: () => ZERO_STAGES, choose: () => choose, dataclass: () => dataclass, no_value_embeddings: () => no_value_embeddings, places: () => places, positive: () => positive, replace: () => replace, shard: () => shard, split: () => split};
});
$.module("accounting.cluster.device", () => {
let Breakdown, FLOPs, Held, LatentAttention, Layout, Parameters, Place, Symbol, Term, TransformerShape, adapted, block_parameters, breakdown, expert_parameters, forward_flops, parameters, shard, stack;

Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");
Layout = $.from("accounting.cluster.layout", "Layout");
Place = $.from("accounting.cluster.layout", "Place");
shard = $.from("accounting.cluster.layout", "shard");
Held = $.from("accounting.cluster.zero", "Held");
adapted = $.from("accounting.counting.adapters", "adapted");
forward_flops = $.from("accounting.counting.flops", "forward_flops");
stack = $.from("accounting.counting.layers", "stack");
block_parameters = $.from("accounting.counting.parameters", "block_parameters");
expert_parameters = $.from("accounting.counting.parameters", "expert_parameters");
parameters = $.from("accounting.counting.parameters", "parameters");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
LatentAttention = $.from("accounting.shape", "LatentAttention");
TransformerShape = $.from("accounting.shape", "TransformerShape");
FLOPs = $.from("accounting.units", "FLOPs");
Parameters = $.from("accounting.units", "Parameters");
const device_parameters = $.fn(["shape", "layout", "place"], function (shape, layout, place) {
let first, last, mine, rows, terms;
[first, last] = $.unpack([$.eq(place.stage, 0n), $.eq(place.stage, $.sub(layout.pipeline, 1n))], 2n, -1n);
mine = shard(shape, layout, place);
terms = $.dict(parameters(mine).terms);
rows = $.mul(Symbol("vocab", mine.vocab_rows), Symbol("d_model", shape.d_model));
if (!$.truth(first)) {
const $$1 = Term(0n);
$.set_item(terms, "embedding", $$1);
$.set_item(terms, "positions", $$1);
}
if ((!$.truth(last) && $.truth($.bound(shape, "norms")))) {
$.set_item(terms, "norms", $.sub($.item(terms, "norms"), $.mul(Symbol("d_model", shape.d_model), ($.truth(shape.biased_norm) ? 2n : 1n))));
}
if ((!$.truth(first) && $.truth(shape.embedding_norm))) {
$.set_item(terms, "norms", $.sub($.item(terms, "norms"), $.mul(Symbol("d_model", shape.d_model), ($.truth(shape.biased_norm) ? 2n : 1n))));
}
if (!$.truth(last)) {
$.set_item(terms, "head", Term(0n));
} else {
if (($.truth(shape.tied_embeddings) && !$.truth(first))) {
$.set_item(terms, "head", rows);
}
}
return breakdown(["parameters of stage ", $.format(place.stage, "", ""), ", rank ", $.format(place.tensor_rank, "", "")].join(''), Parameters, terms, ["one of ", $.format(layout.tensor, "", ""), " shares of ", $.format(mine.num_layers, "", ""), " of ", $.format(shape.num_layers, "", ""), " layers"].join(''));
});
const device_flops = $.fn(["shape", "layout", "place", "batch_size", "seq_len", "pairs"], function (shape, layout, place, batch_size = 1n, seq_len = null, pairs = "full") {
let cp, mine, terms;
mine = shard(shape, layout, place);
terms = $.dict($.call(forward_flops, [mine, shape.sequence(seq_len), batch_size], {pairs: pairs}).terms);
if ($.gt(layout.context, 1n)) {
cp = Symbol("cp", layout.context);
terms = $.dict((() => { const $all = [];
for (const $$2 of $.iter($.method(terms, "items")())) {
let name, term;
[name, term] = $.unpack($$2, 2n, -1n);
$all.push([name, $.floordiv($.add(term, $.sub(cp, 1n)), cp)]);} return $all; })());
}
if ($.ne(place.stage, $.sub(layout.pipeline, 1n))) {
$.del_item(terms, "head");
}
return breakdown(["forward FLOPs of stage ", $.format(place.stage, "", ""), ", rank ", $.format(place.tensor_rank, "", "")].join(''), FLOPs, terms, "matrix multiplications only");
});
const replicated_parameters = $.fn(["shape", "layout", "place"], function (shape, layout, place) {
let biases, count, held, inside, latents, mine, one, whole;
[held, mine] = $.unpack([device_parameters(shape, layout, place), shard(shape, layout, place)], 2n, -1n);
if ($.isnt(shape.lora_rank, null)) {
whole = $.sum((() => { const $all = [];
for (const $$3 of $.iter($.method(adapted(mine), "items")())) {
let into, name, out;
[name, [into, out]] = $.unpack($$3, 2n, -1n);
$all.push($.int(($.has(name, ["output", "down"]) ? out : into)));} return $all; })());
return $.mul($.mul(mine.num_layers, shape.lora_rank), whole);
}
biases = $.mul($.mul(shape.d_model, mine.num_layers), shape.biased_output);
if ($.truth(shape.biased_ffn)) {
biases = $.iadd(biases, $.mul(shape.d_model, $.sum((() => { const $all = [];
for (const $$4 of $.iter($.method(mine.ffns, "items")())) {
let count, one;
[one, count] = $.unpack($$4, 2n, -1n);
$all.push($.mul(count, $.or(one.experts, () => 1n)));} return $all; })())));
}
latents = 0n;
for (const $$5 of $.iter($.method(mine.attentions, "items")())) {
[one, count] = $.unpack($$5, 2n, -1n);
if ($.truth($.isinstance(one, LatentAttention))) {
latents = $.iadd(latents, $.mul($.mul(count, shape.d_model), $.add($.add($.or(one.q_rank, () => 0n), one.kv_rank), one.rope_dim)));
}
}
inside = $.add(biases, latents);
return $.add($.add($.add($.int($.item(held, "norms")), $.int($.item(held, "positions"))), $.int($.item(held, "router"))), inside);
});
const replicated = $.fn(["shape", "layout", "place"], function (shape, layout, place) {
let adapters, block, block_experts, blocks, dp, edp, expert_layers, experts, held, largest, layers, mine, of_experts, others, outside, params;
[held, mine] = $.unpack([device_parameters(shape, layout, place), shard(shape, layout, place)], 2n, -1n);
layers = mine.num_layers;
blocks = $.dict((() => { const $all = [];
for (const $$6 of $.iter(stack(mine).counts)) {
let kind;
kind = $$6;
$all.push([kind, $.sum(block_parameters(mine, kind))]);} return $all; })());
largest = $.max($.method(blocks, "values")());
dp = Symbol("dp", layout.replicas);
if ($.isnt(shape.lora_rank, null)) {
if ($.gt(layout.expert, 1n)) {
throw $.ValueError(["expert ", $.format(layout.expert, "", ""), ": adapters of experts that several devices share are not counted"].join(''));
}
adapters = $.int($.item(held, "adapters"));
return $.as_list([Held(Symbol("n_params", $.int(held.total)), Symbol("block_params", $.add(largest, $.floordiv(adapters, layers))), dp, Symbol("adapter_params", adapters), Symbol("block_adapters", $.floordiv(adapters, layers)))]);
}
of_experts = expert_parameters(mine);
expert_layers = $.sum((() => { const $all = [];
for (const $$7 of $.iter($.method(mine.ffns, "items")())) {
let count, one;
[one, count] = $.unpack($$7, 2n, -1n);
if (!($.isnt(one.experts, null))) continue;
$all.push(count);} return $all; })());
if (($.eq(layout.expert, 1n) || !$.truth(of_experts))) {
block = Symbol("block_params", largest);
params = Symbol("n_params", $.int(held.total));
return $.as_list([Held(params, block, dp, params, block)]);
}
experts = Symbol("expert_params", of_experts);
edp = Symbol("edp", $.floordiv(layout.replicas, layout.expert));
block_experts = Symbol("block_experts", $.floordiv(of_experts, expert_layers));
others = Symbol("n_params", $.sub($.int(held.total), of_experts));
outside = $.as_list((() => { const $all = [];
for (const $$8 of $.iter($.method(blocks, "items")())) {
let kind, size;
[kind, size] = $.unpack($$8, 2n, -1n);
$all.push(($.is($.bound(kind, "ffn").experts, null) ? size : $.sub(size, $.int(block_experts))));} return $all; })());
block = Symbol("block_params", $.max(outside));
return $.as_list([Held(others, block, dp, others, block), Held(experts, block_experts, edp, experts, block_experts)]);
});
return {Breakdown: () => Breakdown, FLOPs: () => FLOPs, Held: () => Held, LatentAttention: () => LatentAttention, Layout: () => Layout, Parameters: () => Parameters, Place: () => Place, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, adapted: () => adapted, block_parameters: () => block_parameters, breakdown: () => breakdown, device_flops: () => device_flops, device_parameters: () => device_parameters, expert_parameters: () => expert_parameters, forward_flops: () => forward_flops, parameters: () => parameters, replicated: () => replicated, replicated_parameters: () => replicated_parameters, shard: () => shard, stack: () => stack};
});
$.module("accounting.planning.inference", () => {
let BITS, Breakdown, Bytes, Device, FLOPs, FORMATS, Layout, PLAIN, Seconds, Storage, TransformerShape, choose, dataclass, inference_memory, kv_cache, largest, places, positive, shard;

dataclass = $.libraries.dataclasses.dataclass;

Breakdown = $.from("accounting.breakdown", "Breakdown");
Layout = $.from("accounting.cluster.layout", "Layout");
places = $.from("accounting.cluster.layout", "places");
shard = $.from("accounting.cluster.layout", "shard");

Device = $.from("accounting.hardware.devices", "Device");
BITS = $.from("accounting.memory.inference", "BITS");
FORMATS = $.from("accounting.memory.inference", "FORMATS");
inference_memory = $.from("accounting.memory.inference", "inference_memory");
kv_cache = $.from("accounting.memory.inference", "kv_cache");
largest = $.from("accounting.planning.fitting", "largest");
TransformerShape = $.from("accounting.shape", "TransformerShape");
choose = $.from("accounting.shape", "choose");
positive = $.from("accounting.shape", "positive");
Bytes = $.from("accounting.units", "Bytes");
FLOPs = $.from("accounting.units", "FLOPs");
Seconds = $.from("accounting.units", "Seconds");
Storage = $.class("Storage", [], true, [["weights", () => "bf16", false], ["cache", () => "bf16", false], ["devices", () => 1n, false]], [
["method", "__post_init__", $.fn([], function () {
const self = this;
choose("weights", self.weights, $.tuple(FORMATS));
choose("cache", self.cache, $.tuple(BITS));
positive("devices", self.devices);
})]
]);
PLAIN = Storage();
const max_sequences = $.fn(["shape", "device", "context", "storage"], function (shape, device, context = null, storage = PLAIN) {
return largest(((batch) => $.le($.int($.call(device_inference_memory, [shape, batch, context], {storage: storage})), $.int(device.memory))));
});
const device_inference_memory = $.fn(["shape", "batch_size", "context", "storage"], function (shape, batch_size = 1n, context = null, storage = PLAIN) {
let length;
length = shape.sequence(context);
return $.call($.max, [(() => { const $all = [];
for (const $$1 of $.iter(_shares(shape, storage.devices))) {
let mine;
mine = $$1;
$all.push($.call(inference_memory, [mine, batch_size, length], {weights: storage.weights, cache: storage.cache}));} return $all; })()], {key: $.int});
});
const _shares = $.fn(["shape", "devices"], function (shape, devices) {
let layout;
layout = $.call(Layout, [], {tensor: devices});
return ($.gt(devices, 1n) ? $.set((() => { const $all = [];
for (const $$2 of $.iter(places(layout))) {
let place;
place = $$2;
$all.push(shard(shape, layout, place));} return $all; })()) : $.set([shape]));
});
return {BITS: () => BITS, Breakdown: () => Breakdown, Bytes: () => Bytes, Device: () => Device, FLOPs: () => FLOPs, FORMATS: () => FORMATS, Layout: () => Layout, PLAIN: () => PLAIN, Seconds: () => Seconds, Storage: () => Storage, TransformerShape: () => TransformerShape, _shares: () => _shares, choose: () => choose, dataclass: () => dataclass, device_inference_memory: () => device_inference_memory, inference_memory: () => inference_memory, kv_cache: () => kv_cache, largest: () => largest, max_sequences: () => max_sequences, places: () => places, positive: () => positive, shard: () => shard};
});
$.module("accounting.planning.fitting", () => {
let Breakdown, Bytes, Callable, DEFAULT, FAR, Policy, TransformerShape, VARIED, breakdown, choose, dataclass, lengthened, lru_cache, positive, replace, training_peak, widened;

Callable = $.libraries.collections_abc.Callable;
dataclass = $.libraries.dataclasses.dataclass;
replace = $.libraries.dataclasses.replace;
lru_cache = $.libraries.functools.lru_cache;
Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");

training_peak = $.from("accounting.memory.training", "training_peak");
lengthened = $.from("accounting.models.resizing", "lengthened");
widened = $.from("accounting.models.resizing", "widened");
DEFAULT = $.from("accounting.policy", "DEFAULT");
Policy = $.from("accounting.policy", "Policy");
TransformerShape = $.from("accounting.shape", "TransformerShape");
choose = $.from("accounting.shape", "choose");
positive = $.from("accounting.shape", "positive");
Bytes = $.from("accounting.units", "Bytes");
VARIED = ["layers", "width"];
FAR = $.shift(1n, 40n);
const max_batch_size = $.fn(["shape", "device_bytes", "seq_len", "policy", "layout"], function (shape, device_bytes, seq_len = null, policy = DEFAULT, layout = null) {
let far, guess, slope;
positive("device_bytes", $.int(device_bytes));
far = $.call(peak_bytes, [shape, FAR, seq_len], {policy: policy, layout: layout});
slope = $.sub($.call(peak_bytes, [shape, $.add(FAR, 1n), seq_len], {policy: policy, layout: layout}), far);
guess = $.sub(FAR, $.floordiv($.sub(far, $.int(device_bytes)), slope));
return largest(((batch) => $.le($.call(peak_bytes, [shape, batch, seq_len], {policy: policy, layout: layout}), $.int(device_bytes))), guess);
});
const longest_context = $.fn(["shape", "device_bytes", "batch_size", "policy", "layout"], function (shape, device_bytes, batch_size = 1n, policy = DEFAULT, layout = null) {
positive("device_bytes", $.int(device_bytes));
return largest(((length) => $.le($.call(peak_bytes, [lengthened(shape, length), batch_size, length], {policy: policy, layout: layout}), $.int(device_bytes))));
});
const peak_bytes = $.fn(["shape", "batch_size", "seq_len", "policy", "layout"], function (shape, batch_size, seq_len = null, policy = DEFAULT, layout = null) {
let fullest;
if ($.is(layout, null)) {
return $.call(training_peak, [shape, batch_size, seq_len], {policy: policy});
}
fullest = $.from("accounting.cluster.memory", "fullest");
return $.int($.call(fullest, [shape, layout, batch_size, seq_len], {policy: policy}).total);
});
const largest = $.fn(["fits", "guess", "least"], function (fits, guess = 1n, least = 1n) {
let high, low, middle;
[low, high] = $.unpack([$.sub(least, 1n), $.max(least, guess)], 2n, -1n);
while ($.truth(fits(high))) {
[low, high] = $.unpack([high, ($.eq(high, guess) ? $.add(high, 1n) : $.mul(2n, high))], 2n, -1n);
}
while ($.gt($.sub(high, low), 1n)) {
middle = ($.eq(high, guess) ? $.sub(high, 1n) : $.floordiv($.add(low, high), 2n));
[low, high] = $.unpack(($.truth(fits(middle)) ? [middle, high] : [low, middle]), 2n, -1n);
}
return low;
});
return {Breakdown: () => Breakdown, Bytes: () => Bytes, Callable: () => Callable, DEFAULT: () => DEFAULT, FAR: () => FAR, Policy: () => Policy, TransformerShape: () => TransformerShape, VARIED: () => VARIED, breakdown: () => breakdown, choose: () => choose, dataclass: () => dataclass, largest: () => largest, lengthened: () => lengthened, longest_context: () => longest_context, lru_cache: () => lru_cache, max_batch_size: () => max_batch_size, peak_bytes: () => peak_bytes, positive: () => positive, replace: () => replace, training_peak: () => training_peak, widened: () => widened};
});
$.module("accounting.models.resizing", () => {
let DeltaAttention, LatentAttention, Layer, TransformerShape, replace;

replace = $.libraries.dataclasses.replace;
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
LatentAttention = $.from("accounting.shape", "LatentAttention");
Layer = $.from("accounting.shape", "Layer");
TransformerShape = $.from("accounting.shape", "TransformerShape");
const lengthened = $.fn(["shape", "positions"], function (shape, positions) {
return $.call(replace, [shape], {context_length: $.max(shape.context_length, positions)});
});
const widened = $.fn(["shape", "kv_heads"], function (shape, kv_heads) {
let heads, width;
heads = $.mul(kv_heads, $.floordiv(shape.num_heads, $.bound(shape, "kv_heads")));
width = $.max(1n, $.floordiv($.mul(heads, shape.d_model), shape.num_heads));
const widen = $.fn(["size"], function (size) {
return $.max(1n, $.floordiv($.mul(width, size), shape.d_model));
});
const wider = $.fn(["size"], function (size) {
return ($.is(size, null) ? null : widen(size));
});
const layer = $.fn(["one"], function (one) {
let attention, ffn;
[attention, ffn] = $.unpack([$.bound(one, "attention"), $.bound(one, "ffn")], 2n, -1n);
if ($.truth($.isinstance(attention, LatentAttention))) {
attention = $.call(replace, [attention], {q_rank: wider(attention.q_rank), kv_rank: widen(attention.kv_rank)});
} else {
if ($.truth($.isinstance(attention, DeltaAttention))) {
throw $.ValueError("a wider model of linear attention is not defined here: give its sizes");
}
}
if ($.isnt(ffn, null)) {
ffn = $.call(replace, [ffn], {d_ff: wider(ffn.d_ff), shared_d_ff: wider(ffn.shared_d_ff)});
}
return Layer(attention, ffn);
});
return $.call(replace, [shape], {d_model: width, num_heads: heads, num_kv_heads: ($.is(shape.num_kv_heads, null) ? null : kv_heads), d_ff: widen(shape.d_ff), leading: $.tuple($.map(layer, shape.leading)), layers: $.tuple($.map(layer, shape.layers))});
});
return {DeltaAttention: () => DeltaAttention, LatentAttention: () => LatentAttention, Layer: () => Layer, TransformerShape: () => TransformerShape, lengthened: () => lengthened, replace: () => replace, widened: () => widened};
});
$.module("accounting.memory.inference", () => {
let BITS, Breakdown, Bytes, DeltaAttention, DeltaDimensions, Dimensions, FORMATS, FfnDimensions, Format, LatentAttention, LatentDimensions, OUTSIDE, Symbol, Term, TransformerShape, adapter_elements, added, breakdown, cached, choose, dataclass, expert_elements, expert_matrices, parameters, positive, whole, windows;

dataclass = $.libraries.dataclasses.dataclass;
Breakdown = $.from("accounting.breakdown", "Breakdown");
breakdown = $.from("accounting.breakdown", "breakdown");
adapter_elements = $.from("accounting.counting.adapters", "adapter_elements");
DeltaDimensions = $.from("accounting.counting.dimensions", "DeltaDimensions");
Dimensions = $.from("accounting.counting.dimensions", "Dimensions");
FfnDimensions = $.from("accounting.counting.dimensions", "FfnDimensions");
LatentDimensions = $.from("accounting.counting.dimensions", "LatentDimensions");
cached = $.from("accounting.counting.flops", "cached");
windows = $.from("accounting.counting.flops", "windows");
expert_elements = $.from("accounting.counting.parameters", "expert_elements");
expert_matrices = $.from("accounting.counting.parameters", "expert_matrices");
parameters = $.from("accounting.counting.parameters", "parameters");
Symbol = $.from("accounting.formula", "Symbol");
Term = $.from("accounting.formula", "Term");
added = $.from("accounting.formula", "added");
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
LatentAttention = $.from("accounting.shape", "LatentAttention");
TransformerShape = $.from("accounting.shape", "TransformerShape");
choose = $.from("accounting.shape", "choose");
positive = $.from("accounting.shape", "positive");
whole = $.from("accounting.shape", "whole");
Bytes = $.from("accounting.units", "Bytes");
BITS = $.dict([["fp32", 32n], ["bf16", 16n], ["fp16", 16n], ["fp8", 8n], ["int8", 8n], ["int4", 4n]]);
Format = $.class("Format", [], true, [["bits", undefined, false], ["group", () => 0n, false], ["scale_bits", () => 0n, false], ["stores", () => "all", false]], [

]);
FORMATS = $.dict([["fp32", Format(32n)], ["bf16", Format(16n)], ["fp16", Format(16n)], ["fp8", Format(8n)], ["int8", Format(8n, 128n, 16n, "blocks")], ["int4", Format(4n, 128n, 16n, "blocks")], ["mxfp4", Format(4n, 32n, 8n, "experts")]]);
OUTSIDE = ["embedding", "positions", "value embeddings", "norms", "head", "adapters"];
const kv_cache = $.fn(["shape", "batch_size", "context", "dtype", "page", "read"], function (shape, batch_size = 1n, context = null, dtype = "bf16", page = 0n, read = false) {
let attention, batch, keys, latents, layers, m, n, newest, positions, s, seen, states, stored, terms, words;
choose("dtype", dtype, $.tuple(BITS));
[batch, seen] = $.unpack([Symbol("batch", positive("batch_size", batch_size)), Symbol("context", shape.sequence(context))], 2n, -1n);
if ($.truth(whole("page", page))) {
seen = $.mul($.floordiv($.add(seen, $.sub(page, 1n)), page), page);
}
n = Dimensions(shape);
[keys, latents, states] = $.unpack([$.as_list([]), $.as_list([]), $.as_list([])], 3n, -1n);
for (const $$1 of $.iter($.method(windows(shape), "items")())) {
[attention, layers] = $.unpack($$1, 2n, -1n);
if ($.truth($.isinstance(attention, LatentAttention))) {
m = LatentDimensions(attention);
$.method(latents, "append")($.mul($.mul(batch, $.add(m.kv_rank, m.rope_dim)), $.mul(layers, seen)));
} else {
if ($.truth($.isinstance(attention, DeltaAttention))) {
s = DeltaDimensions(attention);
newest = $.floordiv($.mul($.mul($.add($.mul(2n, s.keys), s.values), s.kernel), $.item(BITS, dtype)), 8n);
$.method(states, "append")($.mul($.mul(batch, layers), $.add($.mul(4n, $.mul(s.values, s.key_dim)), newest)));
} else {
positions = seen;
if (($.isnt(attention.window, null) && !$.truth(page))) {
positions = ($.truth(read) ? cached(attention, seen) : $.min(seen, Symbol("window", attention.window)));
}
$.method(keys, "append")($.mul(layers, positions));
}
}
}
stored = ($.truth(keys) ? $.floordiv($.mul($.mul($.mul($.mul(batch, n.n_kv_heads), $.bound(n, "head_dim")), added(keys)), $.item(BITS, dtype)), 8n) : Term(0n));
terms = $.dict([["keys", stored], ["values", stored]]);
if ($.truth(latents)) {
$.set_item(terms, "keys", added($.as_list([...$.iter(($.truth(keys) ? $.as_list([stored]) : $.as_list([]))), $.floordiv($.mul(added(latents), $.item(BITS, dtype)), 8n)])));
}
if ($.truth(states)) {
$.set_item(terms, "states", added(states));
}
words = ($.truth(page) ? ["pages of ", $.format(page, "", ""), " positions in every layer"].join('') : "nothing padded");
return breakdown("KV cache", Bytes, terms, [$.format(dtype, "", ""), ", ", $.format(($.truth(latents) ? "latents of keys and values" : words), "", "")].join(''));
});
const weight_bytes = $.fn(["shape", "weights"], function (shape, weights = "bf16") {
let counted, experts, inside;
counted = parameters(shape);
inside = $.add($.add($.int($.item(counted, "attention")), $.int($.item(counted, "ffn"))), $.int($.item(counted, "router")));
experts = $.sum((() => { const $all = [];
for (const $$2 of $.iter($.method(shape.ffns, "items")())) {
let count, ffn;
[ffn, count] = $.unpack($$2, 2n, -1n);
if (!($.truth(ffn.experts))) continue;
$all.push($.mul($.mul(count, ffn.held), expert_matrices(shape, ffn)));} return $all; })());
return breakdown("weights", Bytes, $.dict([...$.entries(_block_bytes(inside, experts, weights)), ...$.entries($.dict((() => { const $all = [];
for (const $$3 of $.iter(OUTSIDE)) {
let name;
name = $$3;
if (!($.has(name, counted))) continue;
$all.push([name, $.mul($.int($.item(counted, name)), _width(weights))]);} return $all; })()))]), _stored(weights));
});
const _block_bytes = $.fn(["elements", "experts", "weights"], function (elements, experts, weights) {
let form, quantised, rest, scales;
form = $.item(FORMATS, choose("weights", weights, $.tuple(FORMATS)));
quantised = Symbol("block_elements", elements);
rest = 0n;
if ($.eq(form.stores, "experts")) {
if (!$.truth(experts)) {
throw $.ValueError(["weights ", $.format(weights, "r", ""), " are those of experts, and this model has none: use another format"].join(''));
}
[quantised, rest] = $.unpack([Symbol("expert_elements", experts), $.mul(2n, Symbol("other_elements", $.sub(elements, experts)))], 2n, -1n);
}
if (($.ge(form.bits, 8n) && !$.truth(form.group))) {
return $.dict([["blocks", $.mul(quantised, $.floordiv(form.bits, 8n))], ["scales", Term(0n)]]);
}
scales = $.floordiv($.add(quantised, $.sub(form.group, 1n)), form.group);
return $.dict([["blocks", $.add($.floordiv($.add($.mul(quantised, form.bits), 7n), 8n), rest)], ["scales", $.mul($.floordiv(form.scale_bits, 8n), scales)]]);
});
const _width = $.fn(["weights"], function (weights) {
let form;
form = $.item(FORMATS, choose("weights", weights, $.tuple(FORMATS)));
return ($.eq(form.stores, "all") ? $.floordiv(form.bits, 8n) : 2n);
});
const _stored = $.fn(["weights"], function (weights) {
let form;
form = $.item(FORMATS, weights);
if ($.eq(form.stores, "all")) {
return [$.format(weights, "", ""), " throughout"].join('');
}
return [$.format(weights, "", ""), " for the ", $.format(form.stores, "", ""), ", ", $.format(form.scale_bits, "", ""), "-bit scales for groups of ", $.format(form.group, "", ""), ", bf16 elsewhere"].join('');
});
const inference_memory = $.fn(["shape", "batch_size", "context", "weights", "cache"], function (shape, batch_size = 1n, context = null, weights = "bf16", cache = "bf16") {
let batch, cached, hidden, n, stored, width;
[n, batch] = $.unpack([Dimensions(shape), Symbol("batch", positive("batch_size", batch_size))], 2n, -1n);
stored = $.dict($.call(weight_bytes, [shape], {weights: weights}).terms);
cached = $.sum((() => { const $all = [];
for (const $$4 of $.iter($.call(kv_cache, [shape, batch_size, context], {dtype: cache}).terms)) {
let _, term;
[_, term] = $.unpack($$4, 2n, -1n);
$all.push(term);} return $all; })());
width = $.floordiv($.item(BITS, ($.eq(weights, "fp32") ? "fp32" : "bf16")), 8n);
hidden = $.max($.mul($.add(n.n_heads, $.mul(2n, n.n_kv_heads)), $.bound(n, "head_dim")), ...$.iter((() => { const $all = [];
for (const $$5 of $.iter(shape.ffns)) {
let one;
one = $$5;
$all.push($.mul($.mul(shape.matrices_of_ffn, one.active), FfnDimensions(shape, one).d_ff));} return $all; })()));
return breakdown("inference memory", Bytes, $.dict([...$.entries(stored), ["kv cache", cached], ["activations", $.mul($.mul(batch, $.add($.mul(2n, n.d_model), hidden)), width)], ["logits", $.mul($.mul(batch, n.vocab), 4n)]]), ["weights ", $.format(weights, "", ""), ", cache ", $.format(cache, "", ""), " at ", $.format(shape.sequence(context), "", ""), " positions; a decoding step holds the residual, its norm, the wider of the two sublayers, and logits in fp32; no allocator's slack"].join(''));
});
return {BITS: () => BITS, Breakdown: () => Breakdown, Bytes: () => Bytes, DeltaAttention: () => DeltaAttention, DeltaDimensions: () => DeltaDimensions, Dimensions: () => Dimensions, FORMATS: () => FORMATS, FfnDimensions: () => FfnDimensions, Format: () => Format, LatentAttention: () => LatentAttention, LatentDimensions: () => LatentDimensions, OUTSIDE: () => OUTSIDE, Symbol: () => Symbol, Term: () => Term, TransformerShape: () => TransformerShape, _block_bytes: () => _block_bytes, _stored: () => _stored, _width: () => _width, adapter_elements: () => adapter_elements, added: () => added, breakdown: () => breakdown, cached: () => cached, choose: () => choose, dataclass: () => dataclass, expert_elements: () => expert_elements, expert_matrices: () => expert_matrices, inference_memory: () => inference_memory, kv_cache: () => kv_cache, parameters: () => parameters, positive: () => positive, weight_bytes: () => weight_bytes, whole: () => whole, windows: () => windows};
});
$.module("accounting.planning.accuracy", () => {
let Accuracy, TABLE, TransformerShape, dataclass;



dataclass = $.libraries.dataclasses.dataclass;
TransformerShape = $.from("accounting.shape", "TransformerShape");
TABLE = "";
Accuracy = $.class("Accuracy", [], true, [["kind", undefined, false], ["runs", undefined, false], ["held_out", undefined, false], ["devices", undefined, false], ["frameworks", undefined, false], ["median", undefined, false], ["largest", undefined, false], ["median_held_out", undefined, false], ["largest_held_out", undefined, false], ["shortest", undefined, false], ["longest", undefined, false]], [
["property", "words", $.fn([], function () {
const self = this;
let models;
models = ($.eq($.bound(self, "kind"), "dense") ? "dense models" : "mixtures of experts");
return [$.format(self.runs, "", ""), " published runs of ", $.format(models, "", ""), " on ", $.format(self.devices, "", ""), " kinds of device by ", $.format(self.frameworks, "", ""), " frameworks: median error ", $.format(self.median, "", [".0%"].join('')), ", largest ", $.format(self.largest, "", [".0%"].join('')), "; of the ", $.format(self.held_out, "", ""), " held out ", $.format(self.median_held_out, "", [".0%"].join('')), " and ", $.format(self.largest_held_out, "", [".0%"].join(''))].join('');
})]
]);
const accuracy = $.fn(["shape"], function (shape) {
let kind, numbers, row, values;
kind = ($.gt(shape.most_experts, 1n) ? "mixture" : "dense");
row = $.next((() => { const $all = [];
for (const $$1 of $.iter(rows())) {
let row;
row = $$1;
if (!($.eq($.item(row, "kind"), kind))) continue;
$all.push(row);} return $all; })());
values = $.dict((() => { const $all = [];
for (const $$2 of $.iter($.method(row, "items")())) {
let name, value;
[name, value] = $.unpack($$2, 2n, -1n);
if (!($.ne(name, "kind"))) continue;
$all.push([$.method(name, "replace")(" ", "_"), value]);} return $all; })());
numbers = $.dict((() => { const $all = [];
for (const $$3 of $.iter($.method(values, "items")())) {
let name, value;
[name, value] = $.unpack($$3, 2n, -1n);
$all.push([name, ($.has(".", value) ? $.float(value) : $.int(value))]);} return $all; })());
return $.call(Accuracy, [kind], {...$.as_object(numbers)});
});
const rows = $.fn([], () => DATA.accuracy);
return {Accuracy: () => Accuracy, TABLE: () => TABLE, TransformerShape: () => TransformerShape, accuracy: () => accuracy, dataclass: () => dataclass, rows: () => rows};
});
$.module("accounting.models.published", () => {
let Attention, FeedForward, LatentAttention, Layer, SHAPES, TransformerShape, _DEEPSEEK, _GPT2, _SCOUT_FFN, replace;

replace = $.libraries.dataclasses.replace;
Attention = $.from("accounting.shape", "Attention");
FeedForward = $.from("accounting.shape", "FeedForward");
LatentAttention = $.from("accounting.shape", "LatentAttention");
Layer = $.from("accounting.shape", "Layer");
TransformerShape = $.from("accounting.shape", "TransformerShape");
_GPT2 = $.dict([["gpt2", [12n, 768n, 12n]], ["gpt2-medium", [24n, 1024n, 16n]], ["gpt2-large", [36n, 1280n, 20n]], ["gpt2-xl", [48n, 1600n, 25n]]]);
const _gpt2 = $.fn(["layers", "width", "heads"], function (layers, width, heads) {
return $.call(TransformerShape, [], {vocab_size: 50257n, context_length: 1024n, num_layers: layers, d_model: width, num_heads: heads, d_ff: $.mul(4n, width), ffn: "gelu", norm: "layernorm", position: "learned", tied_embeddings: true, bias: true});
});
_DEEPSEEK = $.call(LatentAttention, [], {q_rank: 1536n, kv_rank: 512n, nope_dim: 128n, rope_dim: 64n, value_dim: 128n});
_SCOUT_FFN = $.call(FeedForward, [], {experts: 16n, experts_per_token: 1n, shared_d_ff: 8192n, router: "sigmoid_of_input"});
SHAPES = $.dict([...$.entries($.dict((() => { const $all = [];
for (const $$1 of $.iter($.method(_GPT2, "items")())) {
let name, sizes;
[name, sizes] = $.unpack($$1, 2n, -1n);
$all.push([name, _gpt2(...$.iter(sizes))]);} return $all; })())), ...$.entries($.dict((() => { const $all = [];
for (const $$2 of $.iter($.method(_GPT2, "items")())) {
let heads, layers, name, width;
[name, [layers, width, heads]] = $.unpack($$2, 2n, -1n);
$all.push([[$.format(name, "", ""), "-swiglu"].join(''), $.call(TransformerShape, [], {vocab_size: 50257n, context_length: 1024n, num_layers: layers, d_model: width, num_heads: heads, d_ff: $.mul(4n, width)})]);} return $all; })())), ["gpt3-175b", $.call(replace, [_gpt2(96n, 12288n, 96n)], {context_length: 2048n})], ["tinyllama-1.1b", $.call(TransformerShape, [], {vocab_size: 32000n, context_length: 2048n, num_layers: 22n, d_model: 2048n, num_heads: 32n, d_ff: 5632n, num_kv_heads: 4n})], ["llama-2-7b", $.call(TransformerShape, [], {vocab_size: 32000n, context_length: 4096n, num_layers: 32n, d_model: 4096n, num_heads: 32n, d_ff: 11008n})], ["llama-3-8b", $.call(TransformerShape, [], {vocab_size: 128256n, context_length: 8192n, num_layers: 32n, d_model: 4096n, num_heads: 32n, d_ff: 14336n, num_kv_heads: 8n})], ["llama-3-70b", $.call(TransformerShape, [], {vocab_size: 128256n, context_length: 8192n, num_layers: 80n, d_model: 8192n, num_heads: 64n, d_ff: 28672n, num_kv_heads: 8n})], ["llama-3.2-1b", $.call(TransformerShape, [], {vocab_size: 128256n, context_length: 131072n, num_layers: 16n, d_model: 2048n, num_heads: 32n, d_ff: 8192n, num_kv_heads: 8n, tied_embeddings: true})], ["mistral-7b", $.call(TransformerShape, [], {vocab_size: 32000n, context_length: 32768n, num_layers: 32n, d_model: 4096n, num_heads: 32n, d_ff: 14336n, num_kv_heads: 8n, sliding_window: 4096n})], ["mixtral-8x7b", $.call(TransformerShape, [], {vocab_size: 32000n, context_length: 32768n, num_layers: 32n, d_model: 4096n, num_heads: 32n, d_ff: 14336n, num_kv_heads: 8n, experts: 8n, experts_per_token: 2n})], ["qwen2.5-0.5b", $.call(TransformerShape, [], {vocab_size: 151936n, context_length: 32768n, num_layers: 24n, d_model: 896n, num_heads: 14n, d_ff: 4864n, num_kv_heads: 2n, tied_embeddings: true, qkv_bias: true})], ["qwen3-0.6b", $.call(TransformerShape, [], {vocab_size: 151936n, context_length: 40960n, num_layers: 28n, d_model: 1024n, num_heads: 16n, d_ff: 3072n, num_kv_heads: 8n, head_dim: 128n, tied_embeddings: true, qk_norm: true})], ["qwen3-30b-a3b", $.call(TransformerShape, [], {vocab_size: 151936n, context_length: 40960n, num_layers: 48n, d_model: 2048n, num_heads: 32n, d_ff: 768n, num_kv_heads: 4n, head_dim: 128n, qk_norm: true, experts: 128n, experts_per_token: 8n})], ["deepseek-v3", $.call(TransformerShape, [], {vocab_size: 129280n, context_length: 163840n, num_layers: 61n, d_model: 7168n, num_heads: 128n, d_ff: 2048n, leading: $.mul(3n, [Layer(_DEEPSEEK, FeedForward(18432n))]), layers: [Layer(_DEEPSEEK, $.call(FeedForward, [], {experts: 256n, experts_per_token: 8n, shared_d_ff: 2048n, router: "sigmoid"}))]})], ...$.entries($.dict((() => { const $all = [];
for (const $$4 of $.iter([["gpt-oss-20b", 24n, 32n], ["gpt-oss-120b", 36n, 128n]])) {
let experts, layers, name;
[name, layers, experts] = $.unpack($$4, 3n, -1n);
$all.push([name, $.call(TransformerShape, [], {vocab_size: 201088n, context_length: 131072n, num_layers: layers, d_model: 2880n, num_heads: 64n, d_ff: 2880n, num_kv_heads: 8n, head_dim: 64n, ffn: "clamped_swiglu", bias: true, layers: $.tuple((() => { const $all = [];
for (const $$3 of $.iter([128n, null])) {
let window;
window = $$3;
$all.push(Layer($.call(Attention, [window], {sinks: true}), $.call(FeedForward, [], {experts: experts, experts_per_token: 4n, router: "softmax_of_chosen", router_bias: true})));} return $all; })())})]);} return $all; })())), ["llama-4-scout", $.call(TransformerShape, [], {vocab_size: 202048n, context_length: 10485760n, num_layers: 48n, d_model: 5120n, num_heads: 40n, d_ff: 8192n, num_kv_heads: 8n, head_dim: 128n, layers: [...$.iter($.mul(3n, [Layer($.call(Attention, [8192n], {chunked: true, qk_norm: "l2"}), _SCOUT_FFN)])), Layer($.call(Attention, [], {rotated: false}), _SCOUT_FFN)]})], ["gemma-2b", $.call(TransformerShape, [], {vocab_size: 256000n, context_length: 8192n, num_layers: 18n, d_model: 2048n, num_heads: 8n, d_ff: 16384n, num_kv_heads: 1n, head_dim: 256n, ffn: "geglu", tied_embeddings: true})], ["gemma-2-2b", $.call(TransformerShape, [], {vocab_size: 256000n, context_length: 8192n, num_layers: 26n, d_model: 2304n, num_heads: 8n, d_ff: 9216n, num_kv_heads: 4n, head_dim: 256n, ffn: "geglu", tied_embeddings: true, post_norm: true, layers: [Layer(Attention(4096n)), Layer()]})], ["gemma-3-1b", $.call(TransformerShape, [], {vocab_size: 262144n, context_length: 32768n, num_layers: 26n, d_model: 1152n, num_heads: 4n, d_ff: 6912n, num_kv_heads: 1n, head_dim: 256n, ffn: "geglu", tied_embeddings: true, post_norm: true, qk_norm: true, layers: [...$.iter($.mul(5n, [Layer(Attention(512n))])), Layer()]})]]);
return {Attention: () => Attention, FeedForward: () => FeedForward, LatentAttention: () => LatentAttention, Layer: () => Layer, SHAPES: () => SHAPES, TransformerShape: () => TransformerShape, _DEEPSEEK: () => _DEEPSEEK, _GPT2: () => _GPT2, _SCOUT_FFN: () => _SCOUT_FFN, _gpt2: () => _gpt2, replace: () => replace};
});
$.module("accounting.models.families", () => {
let ALIASES, Attention, BIASED_QKV, DEFAULTS, DeltaAttention, FAMILIES, FeedForward, LatentAttention, Layer, MLP_BIAS, MOST_LISTED, Mapping, OWN_FFN_NAME, PLAIN_FFN, QK_NORM, REFUSED, RENAMED, ROUTERS, SWITCHLESS, TransformerShape, WIDE_QK_NORM, WINDOW_PATTERNS, _GELU, _LATENT, _Settings, pattern, positive;

Mapping = $.libraries.collections_abc.Mapping;
MOST_LISTED = $.from("accounting.shape", "MOST_LISTED");
Attention = $.from("accounting.shape", "Attention");
DeltaAttention = $.from("accounting.shape", "DeltaAttention");
FeedForward = $.from("accounting.shape", "FeedForward");
LatentAttention = $.from("accounting.shape", "LatentAttention");
Layer = $.from("accounting.shape", "Layer");
TransformerShape = $.from("accounting.shape", "TransformerShape");
pattern = $.from("accounting.shape", "pattern");
positive = $.from("accounting.shape", "positive");
ALIASES = $.dict([["kimi_k2", "deepseek_v3"], ["llama4", "llama4_text"], ["gemma3", "gemma3_text"]]);
const _defaults = $.fn(["vocab", "context", "layers", "width", "heads", "kv_heads", "d_ff", "**"], function (vocab, context, layers, width, heads, kv_heads, d_ff, more = $.dict([])) {
return $.dict([["vocab_size", vocab], ["max_position_embeddings", context], ["num_hidden_layers", layers], ["hidden_size", width], ["num_attention_heads", heads], ["num_key_value_heads", kv_heads], ["intermediate_size", d_ff], ["tie_word_embeddings", false], ["hidden_act", "silu"], ...$.entries(more)]);
});
_GELU = $.dict([["hidden_act", "gelu_pytorch_tanh"], ["tie_word_embeddings", true]]);
_LATENT = $.dict([["q_lora_rank", 1536n], ["kv_lora_rank", 512n], ["qk_rope_head_dim", 64n], ["qk_nope_head_dim", 128n], ["v_head_dim", 128n]]);
DEFAULTS = $.dict([["llama", _defaults(32000n, 2048n, 32n, 4096n, 32n, null, 11008n)], ["mistral", $.call(_defaults, [32000n, 131072n, 32n, 4096n, 32n, 8n, 14336n], {sliding_window: 4096n})], ["mixtral", $.call(_defaults, [32000n, 131072n, 32n, 4096n, 32n, 8n, 14336n], {num_local_experts: 8n, num_experts_per_tok: 2n})], ["qwen2", $.call(_defaults, [151936n, 32768n, 32n, 4096n, 32n, 32n, 22016n], {sliding_window: 4096n, max_window_layers: 28n})], ["qwen3", $.call(_defaults, [151936n, 32768n, 32n, 4096n, 32n, 32n, 22016n], {sliding_window: 4096n, max_window_layers: 28n, head_dim: 128n})], ["qwen2_moe", $.call(_defaults, [...$.iter([151936n, 32768n, 24n, 2048n, 16n, 16n, 5632n])], {...$.as_object($.dict([["moe_intermediate_size", 1408n], ["num_experts", 60n], ["num_experts_per_tok", 4n], ["qkv_bias", true]])), ...$.as_object($.dict([["shared_expert_intermediate_size", 5632n], ["sliding_window", 4096n], ["max_window_layers", 28n]]))})], ["qwen3_moe", $.call(_defaults, [...$.iter([151936n, 32768n, 24n, 2048n, 32n, 4n, 6144n])], {...$.as_object($.dict([["moe_intermediate_size", 768n], ["num_experts", 128n], ["num_experts_per_tok", 8n], ["sliding_window", 4096n]]))})], ["qwen3_next", $.call(_defaults, [...$.iter([151936n, 32768n, 48n, 2048n, 16n, 2n, 5632n])], {...$.as_object($.dict([["moe_intermediate_size", 512n], ["num_experts", 512n], ["num_experts_per_tok", 10n], ["head_dim", 256n]])), ...$.as_object($.dict([["linear_num_key_heads", 16n], ["linear_num_value_heads", 32n], ["linear_key_head_dim", 128n]])), ...$.as_object($.dict([["linear_value_head_dim", 128n], ["linear_conv_kernel_dim", 4n], ["shared_expert_intermediate_size", 512n]]))})], ["gemma", $.call(_defaults, [256000n, 8192n, 28n, 3072n, 16n, 16n, 24576n], {head_dim: 256n, ...$.as_object(_GELU)})], ["gemma2", $.call(_defaults, [256000n, 8192n, 26n, 2304n, 8n, 4n, 9216n], {head_dim: 256n, sliding_window: 4096n, ...$.as_object(_GELU)})], ["gemma3_text", $.call(_defaults, [262208n, 131072n, 26n, 2304n, 8n, 4n, 9216n], {head_dim: 256n, sliding_window: 4096n, ...$.as_object(_GELU)})], ["phi3", _defaults(32064n, 4096n, 32n, 3072n, 32n, null, 8192n)], ["olmo2", _defaults(50304n, 2048n, 32n, 4096n, 32n, null, 11008n)], ["olmo3", $.call(_defaults, [50304n, 2048n, 32n, 4096n, 32n, null, 11008n], {sliding_window: 4096n})], ["olmoe", $.call(_defaults, [50304n, 4096n, 16n, 2048n, 16n, null, 2048n], {num_experts: 64n, num_experts_per_tok: 8n})], ["smollm3", $.call(_defaults, [128256n, 32768n, 36n, 2048n, 16n, 4n, 11008n], {tie_word_embeddings: true, no_rope_layer_interval: 4n})], ["glm", $.call(_defaults, [151552n, 131072n, 40n, 4096n, 32n, 2n, 13696n], {head_dim: 128n, attention_bias: true})], ["glm4", $.call(_defaults, [151552n, 131072n, 40n, 4096n, 32n, 2n, 13696n], {head_dim: 128n, attention_bias: true})], ["glm4_moe", $.call(_defaults, [...$.iter([151552n, 131072n, 46n, 4096n, 96n, 8n, 10944n])], {...$.as_object($.dict([["moe_intermediate_size", 1408n], ["n_routed_experts", 128n], ["num_experts_per_tok", 8n]])), ...$.as_object($.dict([["n_shared_experts", 1n], ["first_k_dense_replace", 1n]]))})], ["cohere", $.call(_defaults, [256000n, 8192n, 40n, 8192n, 64n, null, 22528n], {tie_word_embeddings: true})], ["cohere2", $.call(_defaults, [256000n, 8192n, 40n, 8192n, 64n, null, 22528n], {tie_word_embeddings: true, sliding_window: 4096n})], ["granite", _defaults(32000n, 2048n, 32n, 4096n, 32n, null, 11008n)], ["starcoder2", $.call(_defaults, [49152n, 4096n, 30n, 3072n, 24n, 2n, 12288n], {use_bias: true, ...$.as_object(_GELU)})], ["gpt_neox", $.call(_defaults, [50432n, 2048n, 44n, 6144n, 64n, null, 24576n], {hidden_act: "gelu", attention_bias: true})], ["opt", $.call(_defaults, [50272n, 2048n, 12n, 768n, 12n, null, 3072n], {hidden_act: "relu", tie_word_embeddings: true})], ["bloom", $.call(_defaults, [250880n, 2048n, 2n, 64n, 8n, null, null], {hidden_act: "gelu", tie_word_embeddings: true})], ["falcon", $.call(_defaults, [...$.iter([65024n, 2048n, 32n, 4544n, 71n, null, null])], {...$.as_object($.dict([["hidden_act", "gelu"], ["tie_word_embeddings", true], ["multi_query", true], ["parallel_attn", true]]))})], ["deepseek_v2", $.call(_defaults, [...$.iter([102400n, 2048n, 32n, 4096n, 32n, null, 11008n])], {...$.as_object($.dict([["moe_intermediate_size", 1407n], ["n_routed_experts", 64n], ["n_shared_experts", 2n], ...$.entries(_LATENT)]))})], ["deepseek_v3", $.call(_defaults, [...$.iter([129280n, 4096n, 61n, 7168n, 128n, null, 18432n])], {...$.as_object($.dict([["moe_intermediate_size", 2048n], ["n_routed_experts", 256n], ["num_experts_per_tok", 8n], ...$.entries(_LATENT)])), ...$.as_object($.dict([["n_shared_experts", 1n], ["first_k_dense_replace", 3n]]))})], ["gpt_oss", $.call(_defaults, [...$.iter([201088n, 131072n, 36n, 2880n, 64n, 8n, 2880n])], {...$.as_object($.dict([["num_local_experts", 128n], ["num_experts_per_tok", 4n], ["head_dim", 64n], ["sliding_window", 128n]])), ...$.as_object($.dict([["attention_bias", true]]))})], ["llama4_text", $.call(_defaults, [...$.iter([202048n, 131072n, 48n, 5120n, 40n, 8n, 8192n])], {...$.as_object($.dict([["num_local_experts", 16n], ["num_experts_per_tok", 1n], ["head_dim", 128n], ["intermediate_size_mlp", 16384n]])), ...$.as_object($.dict([["use_qk_norm", true], ["no_rope_layer_interval", 4n], ["attention_chunk_size", 8192n]]))})], ["gpt2", $.call(_defaults, [50257n, 1024n, 12n, 768n, 12n, null, null], {hidden_act: "gelu_new", tie_word_embeddings: true})]]);
FAMILIES = $.tuple(DEFAULTS);
RENAMED = $.dict([["n_embd", "hidden_size"], ["n_positions", "max_position_embeddings"], ["n_layer", "num_hidden_layers"], ["n_head", "num_attention_heads"], ["n_inner", "intermediate_size"], ["ffn_dim", "intermediate_size"], ["ffn_hidden_size", "intermediate_size"], ["num_kv_heads", "num_key_value_heads"], ["activation_function", "hidden_act"], ["activation", "hidden_act"], ["hidden_activation", "hidden_act"]]);
OWN_FFN_NAME = ["gpt2", "opt", "bloom", "falcon"];
PLAIN_FFN = ["gpt2", "starcoder2", "gpt_neox", "opt", "bloom", "falcon"];
BIASED_QKV = ["glm", "glm4", "glm4_moe"];
SWITCHLESS = ["mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "starcoder2", "opt", "bloom", "falcon", "gpt2"];
MLP_BIAS = ["llama", "granite", "smollm3"];
QK_NORM = ["qwen3", "qwen3_moe", "qwen3_next", "gemma3_text"];
WIDE_QK_NORM = ["olmo2", "olmo3", "olmoe"];
WINDOW_PATTERNS = $.dict([["gemma2", 2n], ["gemma3_text", 6n], ["cohere2", 4n], ["olmo3", 4n], ["gpt_oss", 2n]]);
ROUTERS = $.dict([["deepseek_v3", "sigmoid"], ["glm4_moe", "sigmoid"], ["gpt_oss", "softmax_of_chosen"]]);
REFUSED = $.dict([["add_cross_attention", false], ["do_layer_norm_before", true], ["layer_norm_elementwise_affine", true], ["_remove_final_layer_norm", false]]);
const from_config = $.fn(["config"], function (config) {
if (!$.truth($.isinstance(config, Mapping))) {
throw $.ValueError(["expected the contents of a config.json as a dict, got ", $.format($.type(config).__name__, "", "")].join(''));
}
return shape_of_family(...$.iter(text_of(config)));
});
const text_of = $.fn(["config"], function (config) {
let family, inner;
[family, inner] = $.unpack([$.str($.method(config, "get")("model_type")), $.method(config, "get")("text_config")], 2n, -1n);
if ($.truth($.isinstance(inner, $.dict))) {
family = $.str($.or($.method(inner, "get")("model_type"), () => [$.format(family, "", ""), "_text"].join('')));
config = inner;
}
return [$.method(ALIASES, "get")(family, family), config];
});
const shape_of_family = $.fn(["family", "config"], function (family, config) {
let name, renamed, settings, value;
if ($.hasnt(family, DEFAULTS)) {
throw $.ValueError(["model_type ", $.format(family, "", ""), " is not known: it must be one of ", $.format($.method(", ", "join")(FAMILIES), "", "")].join(''));
}
renamed = $.dict((() => { const $all = [];
for (const $$1 of $.iter($.method(config, "items")())) {
let name, value;
[name, value] = $.unpack($$1, 2n, -1n);
if (!((($.isnt(value, null) || $.hasnt(name, RENAMED)) && !($.eq(name, "intermediate_size") && $.has(family, OWN_FFN_NAME))))) continue;
$all.push([$.method(RENAMED, "get")(name, name), value]);} return $all; })());
settings = _Settings(family, $.dict([...$.entries($.item(DEFAULTS, family)), ...$.entries(renamed)]));
for (const $$2 of $.iter($.method(REFUSED, "items")())) {
[name, value] = $.unpack($$2, 2n, -1n);
if ($.hasnt($.method(settings, "get")(name, value), [value, null])) {
throw $.ValueError([$.format(name, "", ""), " is ", $.format($.method(settings, "get")(name), "r", ""), ", and its cost is not known here"].join(''));
}
}
return settings.shape();
});
_Settings = $.class("_Settings", [], false, [], [
["method", "__init__", $.fn(["family", "values"], function (family, values) {
const self = this;
[self.family, self.values] = $.unpack([family, values], 2n, -1n);
})],
["method", "get", $.fn(["name", "default"], function (name, default_ = null) {
const self = this;
return $.method(self.values, "get")(name, default_);
})],
["method", "whole", $.fn(["name"], function (name) {
const self = this;
let value;
value = $.method(self.values, "get")(name);
if (($.truth($.isinstance(value, $.bool)) || !$.truth($.isinstance(value, $.int)))) {
throw $.ValueError(["config.json must give ", $.format(name, "", ""), " as a whole number, and it gives ", $.format(value, "r", [".80"].join(''))].join(''));
}
return value;
})],
["method", "switch", $.fn(["name", "default"], function (name, default_ = false) {
const self = this;
let value;
value = $.method(self.values, "get")(name);
if ($.is(value, null)) {
return default_;
}
if (!$.truth($.isinstance(value, $.bool))) {
throw $.ValueError(["config.json must give ", $.format(name, "", ""), " as true or false, and it gives ", $.format(value, "r", [".80"].join(''))].join(''));
}
return value;
})],
["method", "listed", $.fn(["name", "length"], function (name, length = null) {
const self = this;
let size, value;
value = $.method(self.values, "get")(name);
if (($.is(value, null) || $.eq(value, $.as_list([])))) {
return null;
}
if ((!$.truth($.isinstance(value, $.list)) || ($.isnt(length, null) && $.ne($.len(value), length)))) {
size = ($.is(length, null) ? "" : [" of ", $.format(length, "", ""), " entries, one for each layer"].join(''));
throw $.ValueError(["config.json must give ", $.format(name, "", ""), " as a list", $.format(size, "", ""), ", and it gives ", $.format(value, "r", [".80"].join(''))].join(''));
}
return value;
})],
["method", "shape", $.fn([], function () {
const self = this;
let body, d_ff, depth, experts, ffn, latent, layers, name, only, run, simple, sizes, uniform, width;
[layers, width] = $.unpack([self.whole("num_hidden_layers"), self.whole("hidden_size")], 2n, -1n);
if ($.gt(positive("num_hidden_layers", layers), MOST_LISTED)) {
throw $.ValueError(["num_hidden_layers ", $.format(layers, "", [".3g"].join('')), " is more than ", $.format(MOST_LISTED, "", [","].join('')), ": give fewer"].join(''));
}
depth = $.as_list((() => { const $all = [];
for (const $$3 of $.iter($.range(layers))) {
let at;
at = $$3;
$all.push(Layer(self.attention(at, layers), self.ffn(at)));} return $all; })());
[latent, uniform] = $.unpack([$.isinstance($.bound($.item(depth, 0n), "attention"), LatentAttention), $.eq($.len($.set(depth)), 1n)], 2n, -1n);
sizes = $.dict([]);
[only, ffn] = $.unpack([$.bound($.item(depth, 0n), "attention"), $.bound($.item(depth, 0n), "ffn")], 2n, -1n);
experts = ($.is(ffn, null) ? $.dict([]) : $.dict([["experts", ffn.experts], ["experts_per_token", ffn.experts_per_token]]));
if (($.truth(uniform) && $.is(ffn, null) && $.truth($.isinstance(only, Attention)) && $.eq(only, Attention(only.window)))) {
$.set_item(sizes, "sliding_window", only.window);
} else {
if (($.truth(uniform) && $.eq(only, Attention()) && $.eq(ffn, $.call(FeedForward, [], {...$.as_object(experts)})))) {
sizes = $.bitor(sizes, experts);
} else {
simple = $.as_list((() => { const $all = [];
for (const $$4 of $.iter(depth)) {
let one;
one = $$4;
$all.push(Layer(($.eq($.bound(one, "attention"), Attention()) ? null : $.bound(one, "attention")), $.bound(one, "ffn")));} return $all; })());
body = pattern(simple);
run = ($.eq($.len(body), layers) ? $.next((() => { const $all = [];
for (const $$5 of $.iter($.range(layers))) {
let at;
at = $$5;
if (!($.ne($.item(simple, at), $.item(simple, 0n)))) continue;
$all.push(at);} return $all; })(), 0n) : 0n);
sizes = $.bitor(sizes, $.dict([["leading", $.tuple($.slice(simple, null, run))], ["layers", pattern($.slice(simple, run, null))]]));
}
}
name = ($.has("moe_intermediate_size", $.item(DEFAULTS, self.family)) ? "moe_intermediate_size" : "intermediate_size");
d_ff = ($.is($.method(self, "get")(name), null) ? $.mul(4n, width) : self.whole(name));
return $.call(TransformerShape, [self.whole("vocab_size"), self.whole("max_position_embeddings"), layers, width, self.whole("num_attention_heads"), d_ff], {num_kv_heads: ($.truth(latent) ? null : self.kv_heads()), head_dim: ($.truth(latent) ? null : self.head_dim(width)), ffn: self.activation(), tied_embeddings: self.switch("tie_word_embeddings"), ...$.as_object(self.norms()), ...$.as_object(self.biases()), ...$.as_object(sizes)});
})],
["method", "attention", $.fn(["at", "layers"], function (at, layers) {
const self = this;
let family, kind, names, norm, parts, ranks, rotated, window;
family = self.family;
if ($.has(family, ["deepseek_v2", "deepseek_v3"])) {
ranks = ($.is($.method(self, "get")("q_lora_rank"), null) ? null : self.whole("q_lora_rank"));
names = ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"];
return LatentAttention(ranks, ...$.iter($.map($.bound(self, "whole"), names)));
}
kind = self.kind(at, layers);
if ($.eq(kind, "linear_attention")) {
parts = ["num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim"];
return DeltaAttention(...$.iter((() => { const $all = [];
for (const $$6 of $.iter(parts)) {
let part;
part = $$6;
$all.push(self.whole(["linear_", $.format(part, "", "")].join('')));} return $all; })()));
}
window = null;
if ($.eq(kind, "sliding_attention")) {
window = self.whole("sliding_window");
} else {
if ($.eq(kind, "chunked_attention")) {
window = self.whole("attention_chunk_size");
}
}
rotated = null;
if ($.has(family, ["smollm3", "llama4_text"])) {
rotated = ($.truth(self.rotated(at, layers)) ? null : false);
} else {
if ($.eq(family, "cohere2")) {
rotated = ($.truth(window) ? null : false);
}
}
norm = null;
if (($.eq(family, "llama4_text") && $.is(rotated, null) && $.truth(self.switch("use_qk_norm")))) {
norm = "l2";
}
return $.call(Attention, [window, $.eq(kind, "chunked_attention"), rotated, norm], {sinks: $.eq(family, "gpt_oss"), gated: $.eq(family, "qwen3_next")});
})],
["method", "kind", $.fn(["at", "layers"], function (at, layers) {
const self = this;
let counted, family, kinds, sliding, turn;
[family, kinds] = $.unpack([self.family, self.listed("layer_types", layers)], 2n, -1n);
if (($.isnt(kinds, null) && $.hasnt(family, ["mistral", "mixtral", "phi3", "starcoder2", "qwen3_moe"]))) {
counted = ["full_attention", "sliding_attention", "chunked_attention", "linear_attention"];
if ((!$.truth($.isinstance($.item(kinds, at), $.str)) || $.hasnt($.item(kinds, at), counted))) {
throw $.ValueError(["layer_types has ", $.format($.item(kinds, at), "r", [".80"].join('')), ", whose cost is not known here"].join(''));
}
return $.str($.item(kinds, at));
}
if ($.eq(family, "qwen3_next")) {
return ($.truth($.mod($.add(at, 1n), 4n)) ? "linear_attention" : "full_attention");
}
if ($.eq(family, "llama4_text")) {
return (($.truth(self.rotated(at, layers)) && $.truth($.method(self, "get")("attention_chunk_size"))) ? "chunked_attention" : "full_attention");
}
sliding = $.isnt($.method(self, "get")("sliding_window"), null);
if ($.has(family, WINDOW_PATTERNS)) {
turn = $.method(self, "get")("sliding_window_pattern", $.item(WINDOW_PATTERNS, family));
sliding = $.and(sliding, () => $.gt($.mod($.add(at, 1n), positive("sliding_window_pattern", turn)), 0n));
} else {
if ($.has(family, ["qwen2", "qwen3", "qwen2_moe"])) {
sliding = $.and(sliding, () => $.and(self.switch("use_sliding_window"), () => $.ge(at, self.whole("max_window_layers"))));
} else {
if ($.eq(family, "qwen3_moe")) {
sliding = $.and(sliding, () => self.switch("use_sliding_window"));
} else {
if ($.eq(family, "smollm3")) {
sliding = $.and(sliding, () => $.and(self.switch("use_sliding_window"), () => !$.truth(self.rotated(at, layers))));
} else {
if ($.hasnt(family, ["mistral", "mixtral", "phi3", "starcoder2"])) {
sliding = false;
}
}
}
}
}
return ($.truth(sliding) ? "sliding_attention" : "full_attention");
})],
["method", "rotated", $.fn(["at", "layers"], function (at, layers) {
const self = this;
let switches;
switches = self.listed("no_rope_layers", layers);
if ($.isnt(switches, null)) {
return $.bool($.item(switches, at));
}
return $.gt($.mod($.add(at, 1n), positive("no_rope_layer_interval", $.method(self, "get")("no_rope_layer_interval"))), 0n);
})],
["method", "ffn", $.fn(["at"], function (at) {
const self = this;
let family, name, shared;
family = self.family;
if ($.has(family, ["mixtral", "olmoe", "gpt_oss", "llama4_text", "glm4_moe", "deepseek_v2", "deepseek_v3"])) {
name = ($.has("n_routed_experts", self.values) ? "n_routed_experts" : "num_local_experts");
name = ($.eq(family, "olmoe") ? "num_experts" : name);
} else {
if ($.has(family, ["qwen2_moe", "qwen3_moe", "qwen3_next"])) {
name = ($.truth($.method(self, "get")("num_local_experts")) ? "num_local_experts" : "num_experts");
} else {
return null;
}
}
if (!$.truth(self.has_experts(at))) {
name = ($.eq(family, "llama4_text") ? "intermediate_size_mlp" : "intermediate_size");
return FeedForward(self.whole(name));
}
shared = null;
if ($.has(family, ["qwen2_moe", "qwen3_next"])) {
shared = $.or(self.whole("shared_expert_intermediate_size"), () => null);
} else {
if ($.has(family, ["glm4_moe", "deepseek_v2", "deepseek_v3"])) {
shared = $.or($.mul($.or($.and($.method(self, "get")("n_shared_experts"), () => self.whole("n_shared_experts")), () => 0n), self.whole("moe_intermediate_size")), () => null);
} else {
if ($.eq(family, "llama4_text")) {
shared = self.whole("intermediate_size");
}
}
}
return $.call(FeedForward, [], {experts: self.whole(name), experts_per_token: self.whole("num_experts_per_tok"), shared_d_ff: shared, shared_gate: $.and($.has(family, ["qwen2_moe", "qwen3_next"]), () => $.isnt(shared, null)), router: ($.eq(family, "llama4_text") ? "sigmoid_of_input" : $.method(ROUTERS, "get")(family, "softmax")), router_bias: $.eq(family, "gpt_oss")});
})],
["method", "has_experts", $.fn(["at"], function (at) {
const self = this;
let listed, step;
if ($.has(self.family, ["glm4_moe", "deepseek_v2", "deepseek_v3"])) {
return $.ge(at, ($.truth($.method(self, "get")("first_k_dense_replace")) ? self.whole("first_k_dense_replace") : 0n));
}
if ($.eq(self.family, "llama4_text")) {
listed = self.listed("moe_layers");
if ($.isnt(listed, null)) {
return $.has(at, listed);
}
return $.eq($.mod($.add(at, 1n), positive("interleave_moe_layer_step", $.or($.method(self, "get")("interleave_moe_layer_step"), () => 1n))), 0n);
}
if ($.has(self.family, ["qwen2_moe", "qwen3_moe", "qwen3_next"])) {
step = positive("decoder_sparse_step", $.method(self, "get")("decoder_sparse_step", 1n));
return $.and($.hasnt(at, $.or(self.listed("mlp_only_layers"), () => $.as_list([]))), () => $.eq($.mod($.add(at, 1n), step), 0n));
}
return true;
})],
["method", "head_dim", $.fn(["width"], function (width) {
const self = this;
let heads;
heads = self.whole("num_attention_heads");
if ($.isnt($.method(self, "get")("head_dim"), null)) {
return self.whole("head_dim");
}
return (($.eq(self.family, "glm4_moe") && $.truth($.mod(width, heads))) ? $.floordiv(width, heads) : null);
})],
["method", "kv_heads", $.fn([], function () {
const self = this;
if ($.has(self.family, ["gpt2", "opt", "bloom", "gpt_neox"])) {
return null;
}
if (($.eq(self.family, "falcon") && !$.truth(self.switch("new_decoder_architecture")))) {
return ($.truth(self.switch("multi_query")) ? 1n : null);
}
return ($.is($.method(self, "get")("num_key_value_heads"), null) ? null : self.whole("num_key_value_heads"));
})],
["method", "activation", $.fn([], function () {
const self = this;
let activations, kind, name;
name = $.method(self, "get")("hidden_act");
if (!$.truth($.isinstance(name, $.str))) {
throw $.ValueError(["config.json must name the activation, and it gives ", $.format(name, "r", [".80"].join(''))].join(''));
}
if (($.eq(self.family, "gpt_oss") && $.eq(name, "silu"))) {
return "clamped_swiglu";
}
kind = ($.has(name, ["silu", "swish"]) ? "silu" : ($.truth($.method(name, "startswith")("gelu")) ? "gelu" : name));
activations = $.dict([["silu", "swiglu"], ["gelu", "geglu"]]);
if ($.has(self.family, PLAIN_FFN)) {
activations = $.dict([["silu", "silu"], ["gelu", "gelu"], ["relu", "relu"]]);
}
if ($.hasnt(kind, activations)) {
throw $.ValueError(["activation ", $.format(name, "r", [".80"].join('')), " is not known here: it must be one of ", $.format($.method(", ", "join")(activations), "", "")].join(''));
}
return $.item(activations, kind);
})],
["method", "norms", $.fn([], function () {
const self = this;
let count, family, sizes;
family = self.family;
sizes = $.dict([["post_norm", $.has(family, ["gemma2", "gemma3_text", "glm4"])]]);
if (($.has(family, QK_NORM) || ($.eq(family, "glm4_moe") && $.truth(self.switch("use_qk_norm"))))) {
$.set_item(sizes, "qk_norm", true);
} else {
if (($.has(family, WIDE_QK_NORM) || ($.eq(family, "cohere") && $.truth(self.switch("use_qk_norm"))))) {
$.set_item(sizes, "qk_norm", "width");
}
}
if ($.has(family, [...$.iter(PLAIN_FFN), "cohere", "cohere2"])) {
sizes = $.bitor(sizes, $.dict([["norm", "layernorm"], ["norm_bias", ($.eq(family, "gpt2") ? null : !$.truth($.method(family, "startswith")("cohere")))]]));
}
if ($.has(family, ["cohere", "cohere2"])) {
$.set_item(sizes, "block_norms", 1n);
}
if (($.eq(family, "falcon") && $.truth(self.switch("parallel_attn")))) {
count = $.or($.method(self, "get")("num_ln_in_parallel_attn"), () => ($.truth(self.switch("new_decoder_architecture")) ? 2n : 1n));
$.set_item(sizes, "block_norms", ($.eq(count, 2n) ? 2n : 1n));
}
if ($.has(family, ["gpt2", "opt"])) {
sizes = $.bitor(sizes, $.dict([["position", "learned"], ["extra_positions", ($.eq(family, "opt") ? 2n : 0n)]]));
}
if (($.eq(family, "bloom") || ($.eq(family, "falcon") && $.truth(self.switch("alibi"))))) {
sizes = $.bitor(sizes, $.dict([["position", "alibi"], ["embedding_norm", $.eq(family, "bloom")]]));
}
return sizes;
})],
["method", "biases", $.fn([], function () {
const self = this;
let attention, family, mlp, sizes;
family = self.family;
if (($.eq(family, "opt") && $.hasnt($.method(self, "get")("word_embed_proj_dim"), [null, $.method(self, "get")("hidden_size")]))) {
throw $.ValueError("word_embed_proj_dim differs from hidden_size, and its cost is not known here");
}
if ($.has(family, ["gpt2", "bloom", "opt"])) {
return $.dict([["bias", self.switch("enable_bias", true)]]);
}
if ($.has(family, ["starcoder2", "falcon"])) {
return $.dict([["bias", self.switch(($.eq(family, "starcoder2") ? "use_bias" : "bias"))]]);
}
attention = $.and($.hasnt(family, SWITCHLESS), () => self.switch("attention_bias"));
mlp = $.or(self.switch("mlp_bias"), () => $.has(family, ["gpt_neox", "gpt_oss"]));
if (($.truth(self.switch("mlp_bias")) && $.hasnt(family, MLP_BIAS))) {
throw $.ValueError(["mlp_bias is set, and its cost in ", $.format(family, "", ""), " is not known here"].join(''));
}
if ($.has(family, ["qwen2", "qwen2_moe"])) {
return $.dict([["qkv_bias", self.switch("qkv_bias", true)]]);
}
if (($.truth(attention) && $.truth(mlp))) {
return $.dict([["bias", true]]);
}
sizes = ($.truth(attention) ? $.dict([["qkv_bias", true]]) : $.dict([]));
if (($.truth(attention) && $.hasnt(family, BIASED_QKV))) {
$.set_item(sizes, "output_bias", true);
}
return $.bitor(sizes, ($.truth(mlp) ? $.dict([["ffn_bias", true]]) : $.dict([])));
})]
]);
return {ALIASES: () => ALIASES, Attention: () => Attention, BIASED_QKV: () => BIASED_QKV, DEFAULTS: () => DEFAULTS, DeltaAttention: () => DeltaAttention, FAMILIES: () => FAMILIES, FeedForward: () => FeedForward, LatentAttention: () => LatentAttention, Layer: () => Layer, MLP_BIAS: () => MLP_BIAS, MOST_LISTED: () => MOST_LISTED, Mapping: () => Mapping, OWN_FFN_NAME: () => OWN_FFN_NAME, PLAIN_FFN: () => PLAIN_FFN, QK_NORM: () => QK_NORM, REFUSED: () => REFUSED, RENAMED: () => RENAMED, ROUTERS: () => ROUTERS, SWITCHLESS: () => SWITCHLESS, TransformerShape: () => TransformerShape, WIDE_QK_NORM: () => WIDE_QK_NORM, WINDOW_PATTERNS: () => WINDOW_PATTERNS, _GELU: () => _GELU, _LATENT: () => _LATENT, _Settings: () => _Settings, _defaults: () => _defaults, from_config: () => from_config, pattern: () => pattern, positive: () => positive, shape_of_family: () => shape_of_family, text_of: () => text_of};
});
