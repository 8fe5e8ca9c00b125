// Written by generate/page_formulas.py
$modules["accounting.page.questions"] = () => {
const ALONE = $load("accounting.hardware.interconnect").ALONE;
const BITS = $load("accounting.memory.inference").BITS;
const DEVICES = $load("accounting.hardware.devices").DEVICES;
const FORMATS = $load("accounting.memory.inference").FORMATS;
const INTERCONNECTS = $load("accounting.hardware.interconnect").INTERCONNECTS;
const Layout = $load("accounting.cluster.layout").Layout;
const Policy = $load("accounting.policy").Policy;
const SETTINGS = $load("accounting.policy").SETTINGS;
const SHAPES = $load("accounting.models.published").SHAPES;
const Seconds = $load("accounting.units").Seconds;
const Storage = $load("accounting.planning.inference").Storage;
const accuracy = $load("accounting.planning.accuracy").accuracy;
const decode_flops = $load("accounting.counting.flops").decode_flops;
const device_inference_memory = $load("accounting.planning.inference").device_inference_memory;
const engine_for = $load("accounting.planning.inference").engine_for;
const free_cache = $load("accounting.planning.inference").free_cache;
const from_config = $load("accounting.models.families").from_config;
const fullest = $load("accounting.cluster.memory").fullest;
const generation_time = $load("accounting.planning.inference").generation_time;
const human = $load("accounting.units").human;
const largest_shape = $load("accounting.planning.fitting").largest_shape;
const longest_context = $load("accounting.planning.fitting").longest_context;
const longest_generation = $load("accounting.planning.inference").longest_generation;
const max_batch_size = $load("accounting.planning.fitting").max_batch_size;
const max_sequences = $load("accounting.planning.inference").max_sequences;
const parameters = $load("accounting.counting.parameters").parameters;
const positive = $load("accounting.checks").positive;
const prefill_flops = $load("accounting.counting.flops").prefill_flops;
const reached = $load("accounting.planning.inference").reached;
const replace = $load("dataclasses").replace;
const step_time = $load("accounting.planning.step_time").step_time;
const symbols = $load("accounting.breakdown").symbols;
const training_flops = $load("accounting.counting.flops").training_flops;
const training_memory = $load("accounting.memory.training").training_memory;
let UNBOUNDED;
UNBOUNDED = $shl(1n, 39n);
let OF_POLICY;
OF_POLICY = $tuple([...$tuple(["precision", "optimizer", "activation_checkpointing", "attention_kernel", "loss", "gradient_dtype"]), ...$tuple(["moment_dtype", "offload", "frozen_dtype", "model_code"])]);
let CHOICES;
CHOICES = dict([["purpose", $tuple(["train", "generate"])], ["model", tuple(SHAPES)], ["device", tuple(DEVICES)], ...dict((function* ($first) { for (const name of $first) yield [name, $item(SETTINGS, name)]; })(OF_POLICY)).items(), ["zero", $tuple(["0", "1", "2", "3"])], ["weights", tuple(FORMATS)], ["cache", tuple(BITS)]]);
let choices;
choices = $def("choices", "", [], function () {

return dict([["choices", CHOICES], ["symbols", symbols()]]);
});
let answer;
answer = $def("answer", "question", [], function (question) {
let machine, rest, shape, tables;

[shape, machine] = $tuple([_shape(question), $item(DEVICES, $item(question, "device"))]);
tables = [_table("parameters", parameters(shape))];
if ($gt(shape.most_experts, 1n)) {
tables.append(_table("parameters of a token", parameters(shape, {__proto__: $k, active: true})));
}
rest = ($eq($item(question, "purpose"), "train") ? _training : _generation);
return dict([["tables", [...tables, ...rest(question, shape, machine)]]]);
});
let largest;
largest = $def("largest", "question", [], function (question) {
let batch, context, engine, free, how, layout, machine, memory, policy, positions, rows, shape, size, storage;

[shape, machine] = $tuple([_shape(question), $item(DEVICES, $item(question, "device"))]);
[memory, batch, context] = $tuple([int(getattr(machine, "memory")), $item(question, "batch"), $item(question, "context")]);
if ($eq($item(question, "purpose"), "generate")) {
[storage, positions] = $tuple([_storage(question), $add(_prompt(question, shape), $item(question, "output"))]);
engine = engine_for(machine);
rows = [$tuple(["sequences at once", (() => max_sequences(shape, machine, positions, {__proto__: $k, storage: storage, engine: engine}))]), $tuple(["positions of each", (() => longest_generation(shape, machine, batch, {__proto__: $k, storage: storage, engine: engine}))])];
free = free_cache(shape, machine, engine, {__proto__: $k, storage: storage});
how = ("" + "the most whose cache takes at most the " + $format(free, ("" + ",")) + " bytes that vLLM leaves of a device by its defaults");
return dict([["rows", [...(function* ($first) { for (const [name, search] of $first) yield _searched(name, search, how); })(rows)]]]);
}
[policy, layout] = $tuple([_policy(question), _layout(question)]);
size = $def("size", "vary", [], function (vary) {
let most;
most = largest_shape(shape, memory, batch, context, {__proto__: $k, vary: vary, policy: policy, layout: layout});
return ($is(most, null) ? null : ($eq(vary, "layers") ? most.num_layers : most.d_model));
});
rows = [$tuple(["sequences of a micro-batch", (() => max_batch_size(shape, memory, context, {__proto__: $k, policy: policy, layout: layout}))]), $tuple(["positions of a sequence", (() => longest_context(shape, memory, batch, {__proto__: $k, policy: policy, layout: layout}))]), $tuple(["layers", (() => size("layers"))]), $tuple(["width (d_model), in proportion", (() => size("width"))])];
how = ("" + "the most whose peak in a step takes at most " + $format(memory, ("" + ",")) + " bytes of a device; one more does not fit");
return dict([["rows", [...(function* ($first) { for (const [name, search] of $first) yield _searched(name, search, how); })(rows)]]]);
});
let _searched;
_searched = $def("_searched", "name search how", [], function (name, search, how) {
let shown, value;
try {
value = search();
} catch ($error) {
if (!isinstance($error, ValueError)) throw $error;
let error = $error;
return dict([["name", name], ["value", null], ["shown", "not counted"], ["formula", str(error)]]);
}
shown = (!$true(value) ? "none" : ($ge(value, UNBOUNDED) ? "any number" : ("" + $format(value, ("" + ",")))));
return dict([["name", name], ["value", value], ["shown", shown], ["formula", how]]);
});
let _shape;
_shape = $def("_shape", "question", [], function (question) {
let adapted, shape;
shape = ($is($item(question, "config"), null) ? $item(SHAPES, $item(question, "model")) : from_config($item(question, "config")));
adapted = $and($eq($item(question, "purpose"), "train"), () => $item(question, "lora_rank"));
return ($true(adapted) ? replace(shape, {__proto__: $k, lora_rank: $item(question, "lora_rank")}) : shape);
});
let _policy;
_policy = $def("_policy", "question", [], function (question) {
return Policy({__proto__: $k, ...$named(dict((function* ($first) { for (const name of $first) yield [name, $item(question, name)]; })(OF_POLICY)))});
});
let _layout;
_layout = $def("_layout", "question", [], function (question) {
let data, devices, layout, pipeline, tensor, zero;

[devices, tensor, pipeline] = $tuple([$item(question, "devices"), $item(question, "tensor"), $item(question, "pipeline")]);
if ($true($mod(devices, $mul(tensor, pipeline)))) {
throw ValueError(("" + "expected devices as a multiple of tensor × pipeline " + $format($mul(tensor, pipeline), "") + ", got " + $format(devices, "")));
}
data = $floordiv(devices, $mul(tensor, pipeline));
zero = ($gt(data, 1n) ? int($item(question, "zero")) : 0n);
layout = Layout(data, tensor, pipeline, zero, $gt(tensor, 1n), $item(question, "micro_batches"));
return (($gt(layout.gpus, 1n) || $gt(layout.micro_batches, 1n)) ? layout : null);
});
let _storage;
_storage = $def("_storage", "question", [], function (question) {
return Storage($item(question, "weights"), $item(question, "cache"), $item(question, "devices"));
});
let _prompt;
_prompt = $def("_prompt", "question shape", [], function (question, shape) {
return int($or($item(question, "context"), () => max(1n, $sub(shape.context_length, $item(question, "output")))));
});
let _training;
_training = $def("_training", "question shape machine", [], function (question, shape, machine) {
let batch, context, devices, each, errors, flops, joined, kind, layout, memory, pairs, peak, policy, run, sequences, step, steps, whole;
[policy, batch, devices] = $tuple([_policy(question), $item(question, "batch"), $item(question, "devices")]);
[layout, context] = $tuple([_layout(question), shape.sequence($item(question, "context"))]);
if ($is(layout, null)) {
memory = _table("memory", getattr(training_memory(shape, batch, context, {__proto__: $k, policy: policy}), "peak"));
} else {
memory = _table("memory", fullest(shape, layout, batch, context, {__proto__: $k, policy: policy}));
}
memory = $union(memory, dict([["device", int(getattr(machine, "memory"))], ["device shown", human(getattr(machine, "memory"))]]));
layout = $or(layout, () => Layout());
sequences = $mul($mul(batch, layout.micro_batches), layout.data);
flops = training_flops(shape, context, sequences, {__proto__: $k, pairs: "causal"});
joined = ($gt(devices, 1n) ? INTERCONNECTS.get(getattr(machine, "name")) : ALONE);
if ($is(joined, null)) {
throw ValueError(("" + "expected a device whose links are listed, or one device, got " + $format(devices, "") + " × " + $format(machine.name, "")));
}
pairs = ($eq(policy.attention_kernel, "eager") ? "full" : "causal");
step = step_time(shape, layout, machine, joined, batch, context, {__proto__: $k, policy: policy, pairs: pairs});
kind = ($eq(policy.precision, "fp8") ? "fp8" : "bf16");
[each, errors] = $tuple([float(getattr(step, "total")), accuracy(shape, machine, devices, context, {__proto__: $k, precision: kind})]);
steps = $neg($floordiv($neg(positive("tokens", $item(question, "tokens"))), $mul(sequences, context)));
whole = $mul(each, steps);
peak = float(machine.peak(($eq(policy.precision, "fp32") ? "fp32" : "bf16")));
run = [_figure("steps", steps, "", "tokens // (sequences of a step · context), rounded up"), _figure("time", whole, "s", ("" + $format(human(getattr(step, "total")), "") + " of a step · " + $format(steps, ("" + ",")) + " steps")), _figure("at best", $mul(whole, errors.shortest), "s", ("" + "time · " + $format(errors.shortest, ""))), _figure("at worst", $mul(whole, errors.longest), "s", ("" + "time · " + $format(errors.longest, ""))), _figure("MFU", $div(int(getattr(flops, "total")), $mul($mul(each, devices), peak)), "", "FLOPs / (step · devices · dense peak)"), _figure("cost", $div($mul($mul($item(question, "price"), devices), whole), 3600n), "", "price · devices · hours of time")];
return [memory, _table("FLOPs of a step", flops), dict([["title", "time of a step"], ["note", ("" + "the slowest stage of " + $format(layout.words, "") + "; matmuls as measured on " + $format(machine.name, ""))], ["total", each], ["shown", human(getattr(step, "total"))], ["rows", [...(function* ($first) { for (const [name, part] of $first) if ($true(float(part))) yield _figure(name, float(part), "s", $item(CAUSES, name)); })(step.parts.items())]]]), dict([["title", "the run"], ["note", ("" + "the range is that of " + $format(errors.words, ""))], ["total", null], ["shown", ""], ["rows", run]])];
});
let CAUSES;
CAUSES = dict([["matmul", "FLOPs, recomputed ones included / (dense peak · part that matmuls reach)"], ["memory", "bytes that elementwise work reads and writes / bandwidth"], ["tensor", "bytes to the devices of a layer / rate of the link"], ["context", "keys and values of the other parts of a sequence / rate of the link"], ["expert", "tokens to their experts and back / rate of the link"], ["bubble", "(stages - 1) · time of a micro-batch"], ["data", "gradients and parameters / rate of the link or network, less what the backward hides"], ["optimizer", "bytes of weights, gradients and optimizer state / bandwidth"]]);
let _generation;
_generation = $def("_generation", "question shape machine", [], function (question, shape, machine) {
let batch, how, least, memory, most, name, note, one, output, price, prompt, rate, run, storage, time;
[batch, prompt, output] = $tuple([$item(question, "batch"), _prompt(question, shape), $item(question, "output")]);
[storage, price] = $tuple([_storage(question), $item(question, "price")]);
memory = _table("memory", device_inference_memory(shape, batch, $add(prompt, output), {__proto__: $k, storage: storage}));
memory = $union(memory, dict([["device", int(getattr(machine, "memory"))], ["device shown", human(getattr(machine, "memory"))]]));
time = generation_time(shape, machine, prompt, output, batch, {__proto__: $k, storage: storage});
[rate, [least, most]] = $tuple([time.tokens_per_second, reached(batch, $item(question, "devices"))]);
run = [];
for ([name, one] of $tuple([$tuple(["time to the first token", time.prefill]), $tuple(["time of the last token", time.last_step])])) {
how = ("" + "the longer of " + $format(int(getattr(one, "flops")), ("" + ",")) + " FLOP / peak and " + $format(int(getattr(one, "moved")), ("" + ",")) + " B / bandwidth: " + $format(one.bound, ""));
run.append(_figure(name, float(getattr(one, "seconds")), "s", how));
}
run = $add(run, [_figure("time", float(getattr(time, "seconds")), "s", "first token + every further token"), _figure("tokens a second", rate, "", "batch · (output - 1) / time after the first token"), _figure("tokens a second, slowest engine", $mul(least, rate), "", ("" + $format(least, "") + " of it, which measured engines reach")), _figure("tokens a second, fastest engine", $mul(most, rate), "", ("" + $format(most, "") + " of it")), _figure("cost of 1M prompt tokens", time.cost_per_million_prompt_tokens(price), "", "price · devices · hours"), _figure("cost of 1M output tokens", time.cost_per_million_output_tokens(price), "", "price · devices · hours")]);
note = "a roofline, hence lower bounds: arithmetic and memory traffic overlap, the longer decides";
return [memory, _table("FLOPs of the prompt", prefill_flops(shape, prompt, batch)), _table("FLOPs of the last token", decode_flops(shape, $sub($add(prompt, output), 1n), batch)), dict([["title", "the run"], ["note", note], ["total", null], ["shown", ""], ["rows", run]])];
});
let _figure;
_figure = $def("_figure", "name value unit formula", [], function (name, value, unit, formula) {
let shown;
shown = ($eq(unit, "s") ? human(Seconds(value)) : ($true(isinstance(value, int)) ? ("" + $format(value, ("" + ","))) : ("" + $format(value, ("" + ",.2f")))));
return dict([["name", name], ["value", value], ["shown", ($eq(name, "MFU") ? ("" + $format(value, ("" + ".1%"))) : shown)], ["formula", formula]]);
});
let _table;
_table = $def("_table", "title one", [], function (title, one) {
let note, rows;

rows = [...(function* ($first) { for (const [name, term] of $first) if ($true(term)) yield dict([["name", name], ["value", int(term)], ["shown", human(one.unit(int(term)))], ["formula", term.text()], ["numbers", term.text({__proto__: $k, values: true})]]); })(one.terms)];
note = ($eq(one.title, title) ? one.convention : ("" + $format(one.title, "") + "; " + $format(one.convention, "")));
return dict([["title", title], ["note", note], ["total", int(getattr(one, "total"))], ["shown", human(getattr(one, "total"))], ["rows", rows]]);
});
return {UNBOUNDED, OF_POLICY, CHOICES, choices, answer, largest, _searched, _shape, _policy, _layout, _storage, _prompt, _training, CAUSES, _generation, _figure, _table};
};
$modules["accounting.planning.fitting"] = () => {
const DEFAULT = $load("accounting.policy").DEFAULT;
const TransformerShape = $load("accounting.shape").TransformerShape;
const choose = $load("accounting.checks").choose;
const deepened = $load("accounting.models.resizing").deepened;
const instance = $load("accounting.checks").instance;
const lengthened = $load("accounting.models.resizing").lengthened;
const lru_cache = $load("functools").lru_cache;
const positive = $load("accounting.checks").positive;
const training_peak = $load("accounting.memory.training").training_peak;
const widened = $load("accounting.models.resizing").widened;
let VARIED;
VARIED = $tuple(["layers", "width"]);
let FAR;
FAR = $shl(1n, 40n);
let max_batch_size;
max_batch_size = $def("max_batch_size", "shape device_bytes seq_len= * policy= layout=", [null, DEFAULT, null], function (shape, device_bytes, seq_len, policy, layout) {
let far, guess, limit, slope;

limit = positive("device_bytes", device_bytes);
far = peak_bytes(shape, FAR, seq_len, {__proto__: $k, policy: policy, layout: layout});
slope = $sub(peak_bytes(shape, $add(FAR, 1n), seq_len, {__proto__: $k, policy: policy, layout: layout}), far);
guess = $sub(FAR, $floordiv($sub(far, limit), slope));
return largest(((batch) => $le(peak_bytes(shape, batch, seq_len, {__proto__: $k, policy: policy, layout: layout}), limit)), guess);
});
let longest_context;
longest_context = $def("longest_context", "shape device_bytes batch_size= * policy= layout=", [1n, DEFAULT, null], function (shape, device_bytes, batch_size, policy, layout) {
let limit;

limit = positive("device_bytes", device_bytes);
return largest(((length) => $le(peak_bytes(lengthened(shape, length), batch_size, length, {__proto__: $k, policy: policy, layout: layout}), limit)));
});
let largest_shape;
largest_shape = $def("largest_shape", "shape device_bytes batch_size= seq_len= * vary= policy= layout=", [1n, null, "layers", DEFAULT, null], function (shape, device_bytes, batch_size, seq_len, vary, policy, layout) {
let least, limit, make, steps;

limit = positive("device_bytes", device_bytes);
choose("vary", vary, VARIED);
make = ($eq(vary, "layers") ? deepened : widened);
least = _least(((n) => make(shape, n)), layout);
steps = largest(((n) => $le(peak_bytes(make(shape, n), batch_size, seq_len, {__proto__: $k, policy: policy, layout: layout}), limit)), {__proto__: $k, least: least});
return ($ge(steps, least) ? make(shape, steps) : null);
});
let _least;
_least = $def("_least", "make layout", [], function (make, layout) {
let Place, most, n, shard;

if ($is(layout, null)) {
return 1n;
}
Place = $load("accounting.cluster.layout").Place; shard = $load("accounting.cluster.layout").shard;
for (n of range(1n, max(getattr(layout, "tensor"), getattr(layout, "pipeline")))) {
try {
shard(make(n), layout, Place());
} catch ($error) {
if (!isinstance($error, ValueError)) throw $error;
continue;
}
return n;
}
most = max(getattr(layout, "tensor"), getattr(layout, "pipeline"));
shard(make(most), layout, Place());
return most;
});
let peak_bytes;
peak_bytes = lru_cache({__proto__: $k, maxsize: 64n, typed: true})($def("peak_bytes", "shape batch_size seq_len= * policy= layout=", [null, DEFAULT, null], function (shape, batch_size, seq_len, policy, layout) {
let fullest;

instance("shape", shape, TransformerShape, "SHAPES");
if ($is(layout, null)) {
return training_peak(shape, batch_size, seq_len, {__proto__: $k, policy: policy});
}
fullest = $load("accounting.cluster.memory").fullest;
return int(getattr(fullest(shape, layout, batch_size, seq_len, {__proto__: $k, policy: policy}), "total"));
}));
let largest;
largest = $def("largest", "fits guess= least=", [1n, 1n], function (fits, guess, least) {
let high, low, middle;

[low, high] = $tuple([$sub(least, 1n), max(least, guess)]);
while ($true(fits(high))) {
[low, high] = $tuple([high, ($eq(high, guess) ? $add(high, 1n) : $mul(2n, high))]);
}
while ($gt($sub(high, low), 1n)) {
middle = ($eq(high, guess) ? $sub(high, 1n) : $floordiv($add(low, high), 2n));
[low, high] = ($true(fits(middle)) ? $tuple([middle, high]) : $tuple([low, middle]));
}
return low;
});
return {VARIED, FAR, max_batch_size, longest_context, largest_shape, _least, peak_bytes, largest};
};
$modules["accounting.models.resizing"] = () => {
const LatentAttention = $load("accounting.layer").LatentAttention;
const Layer = $load("accounting.layer").Layer;
const Mixer = $load("accounting.layer").Mixer;
const replace = $load("dataclasses").replace;
let lengthened;
lengthened = $def("lengthened", "shape positions", [], function (shape, positions) {

return replace(shape, {__proto__: $k, context_length: max(getattr(shape, "context_length"), positions)});
});
let deepened;
deepened = $def("deepened", "shape layers", [], function (shape, layers) {
let leading, repeated;

leading = len(getattr(shape, "leading"));
if ($true(leading)) {
leading = min(layers, max(1n, $floordiv($mul(leading, layers), shape.num_layers)));
}
repeated = [...(function* ($first) { for (const at of $first) yield $item(shape.leading, $floordiv($mul(at, len(getattr(shape, "leading"))), leading)); })(range(leading))];
return replace(shape, {__proto__: $k, num_layers: layers, leading: tuple(repeated)});
});
let widened;
widened = $def("widened", "shape kv_heads", [], function (shape, kv_heads) {
let heads, layer, widen, wider, width;

heads = $mul(kv_heads, $floordiv(shape.num_heads, shape.kv_heads));
width = max(1n, $floordiv($mul(heads, shape.d_model), shape.num_heads));
widen = $def("widen", "size", [], function (size) {
return max(1n, $floordiv($mul(width, size), shape.d_model));
});
wider = $def("wider", "size", [], function (size) {
return ($is(size, null) ? null : widen(size));
});
layer = $def("layer", "one", [], function (one) {
let attention, ffn;
[attention, ffn] = $tuple([one.attention, one.ffn]);
if ($true(isinstance(attention, LatentAttention))) {
attention = replace(attention, {__proto__: $k, q_rank: wider(getattr(attention, "q_rank")), kv_rank: widen(getattr(attention, "kv_rank"))});
} else {
if ($true(isinstance(attention, Mixer))) {
throw ValueError("a wider model of layers with a state is not defined here: give its sizes");
}
}
if ($isnot(ffn, null)) {
ffn = replace(ffn, {__proto__: $k, d_ff: wider(getattr(ffn, "d_ff")), shared_d_ff: wider(getattr(ffn, "shared_d_ff"))});
}
return Layer(attention, ffn);
});
return replace(shape, {__proto__: $k, d_model: width, num_heads: heads, num_kv_heads: ($is(shape.num_kv_heads, null) ? null : kv_heads), d_ff: widen(getattr(shape, "d_ff")), leading: tuple(map(layer, getattr(shape, "leading"))), layers: tuple(map(layer, getattr(shape, "layers")))});
});
return {lengthened, deepened, widened};
};
$modules["accounting.cluster.memory"] = () => {
const Component = $load("accounting.memory.records").Component;
const DEFAULT = $load("accounting.policy").DEFAULT;
const FIRST = $load("accounting.cluster.layout").FIRST;
const ForwardPass = $load("accounting.memory.activations").ForwardPass;
const Group = $load("accounting.memory.records").Group;
const Item = $load("accounting.memory.records").Item;
const MADE_ONCE = $load("accounting.memory.records").MADE_ONCE;
const OF_A_PASS = $load("accounting.cluster.zero").OF_A_PASS;
const Part = $load("accounting.cluster.zero").Part;
const PhaseKind = $load("accounting.memory.records").PhaseKind;
const Step = $load("accounting.memory.training").Step;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const added = $load("accounting.formula").added;
const device_parameters = $load("accounting.cluster.device").device_parameters;
const items = $load("accounting.memory.records").items;
const matrices = $load("accounting.counting.parameters").matrices;
const only_with = $load("accounting.memory.transformers_blocks").only_with;
const optimizer_state = $load("accounting.memory.optimizer_state").optimizer_state;
const overhead = $load("accounting.memory.training").overhead;
const phase = $load("accounting.memory.records").phase;
const places = $load("accounting.cluster.layout").places;
const plain_bytes = $load("accounting.memory.records").plain_bytes;
const replace = $load("dataclasses").replace;
const replicated = $load("accounting.cluster.device").replicated;
const saved_by_layers = $load("accounting.memory.activations").saved_by_layers;
const shard = $load("accounting.cluster.layout").shard;
const shard_of = $load("accounting.cluster.zero").shard_of;
const sharded_bytes = $load("accounting.cluster.zero").sharded_bytes;
const step_temporaries = $load("accounting.memory.optimizer_state").step_temporaries;
const trained_tensors = $load("accounting.counting.parameters").trained_tensors;
let GROUPS;
GROUPS = dict([[Part.PARAMETERS, Group.PARAMETERS], [Part.GATHERED, Group.PARAMETERS], [Part.GRADIENTS, Group.GRADIENTS], [Part.REDUCED, Group.GRADIENTS], [Part.OPTIMIZER_STATE, Group.OPTIMIZER_STATE]]);
let MOMENTS;
MOMENTS = dict([["adamw", 2n], ["sgd", 1n]]);
let device_memory;
device_memory = $def("device_memory", "shape layout place= batch_size= seq_len= * policy=", [FIRST, 1n, null, DEFAULT], function (shape, layout, place, batch_size, seq_len, policy) {
let alive, always, besides, kind, last, moments, phases, run, state, stepping, title, waiting, words;

run = Step(device_forward_pass(shape, layout, place, batch_size, seq_len, policy));
last = $eq(place.stage, $sub(layout.pipeline, 1n));
if ($true(place.stage)) {
run.shared.$delete(Component.TOKEN_IDS);
}
state = _state(policy, shape, layout, place);
[always, besides] = $tuple([list(state.values()), ($true(policy.overhead_bytes) ? [overhead(policy)] : [])]);
moments = [...($true(last) ? run.losses() : []), ...run.blocks()];
if (($eq(place.stage, 0n) && !$true(run.frozen))) {
moments.append(run.embedding_backward({__proto__: $k, tied: $and(run.shape.tied_embeddings, () => last)}));
}
waiting = _in_flight(run, layout, place, {__proto__: $k, last: last});
words = ("" + $format(policy.optimizer, "") + ", " + $format(policy.optimizer_step, "") + " step; " + $format(policy.description, "") + "; " + $format(layout.in_flight(getattr(place, "stage")), "") + " micro-batches in flight; no allocator's rounding, no buffers of collectives");
phases = [...(function* ($first) { for (const one of $first) yield $tuple([one.title, one.kind, [...always, ...besides, _newest(run, one), ...waiting, ...one.alive]]); })(moments)];
stepping = [...(function* ($first) { for (const [part, item] of $first) if ($notin(part, OF_A_PASS)) yield item; })(state.items()), ...besides];
stepping.append(Item("temporaries", getattr(Group, "TEMPORARY"), _step_temporaries(run, shape, layout, place)));
phases.append($tuple(["optimizer step", PhaseKind.OPTIMIZER_STEP, stepping]));
[title, kind, alive] = max(phases, {__proto__: $k, key: ((one) => sum((function* ($first) { for (const item of $first) yield plain_bytes(getattr(item, "tensors")); })($item(one, 2n))))});
return phase(title, kind, alive, words, {__proto__: $k, place: place.words});
});
let fullest;
fullest = $def("fullest", "shape layout batch_size= seq_len= * policy= limit=", [1n, null, DEFAULT, null], function (shape, layout, batch_size, seq_len, policy, limit) {
let end, mine, most, peak, place, seen;

seen = set();
most = null;
for (place of places(layout)) {
end = ($eq(place.stage, 0n) ? 0n : ($eq(place.stage, $sub(layout.pipeline, 1n)) ? 2n : 1n));
mine = $tuple([end, shard(shape, layout, place)]);
if ($in(mine, seen)) {
continue;
}
seen.add(mine);
peak = device_memory(shape, layout, place, batch_size, seq_len, {__proto__: $k, policy: policy});
if (($is(most, null) || $gt(int(getattr(peak, "total")), int(getattr(most, "total"))))) {
most = peak;
}
if (($isnot(limit, null) && $gt(int(getattr(peak, "total")), limit))) {
break;
}
}
if ($is(most, null)) {
throw ValueError(("" + $format(layout.words, "") + " has no device"));
}
return most;
});
let device_forward_pass;
device_forward_pass = $def("device_forward_pass", "shape layout place batch_size seq_len policy", [], function (shape, layout, place, batch_size, seq_len, policy) {
let accumulating, mine, several, shards, words;

if (($notin(policy.optimizer, MOMENTS) && !($eq(layout.tensor, layout.pipeline) && $eq(layout.pipeline, 1n)))) {
words = ("" + "optimizer " + $format(repr(policy.optimizer), "") + " goes by whole tensors, which several devices share here");
throw ValueError(("" + $format(words, "") + ": use one of " + $format(", ".join(MOMENTS), "")));
}
if ($eq(policy.allocator, "cuda")) {
throw ValueError(("" + "allocator " + $format(repr(policy.allocator), "") + " is counted of one device alone: use 'exact' or 'reserved'"));
}
several = dict([["precision", $tuple(["fp32", "bf16", "pure_bf16", "autocast"])], ["frozen_dtype", $tuple(["weights"])]]);
only_with("the memory of several devices", policy, several);
mine = shard(shape, layout, place);
accumulating = replace(policy, {__proto__: $k, gradient_accumulation: true});
shards = ($true(layout.sequence_parallel) ? layout.tensor : 1n);
return ForwardPass(mine, batch_size, shape.sequence(seq_len), accumulating, shards, getattr(layout, "context"));
});
let _state;
_state = $def("_state", "policy shape layout place", [], function (policy, shape, layout, place) {
let at, each, gradient, layers, mine, one, part, rank, size, sizes, states, weight, whole;

[states, mine] = $tuple([Term(0n), shard(shape, layout, place)]);
[weight, gradient] = $tuple([Symbol("weight_bytes", getattr(policy.bytes, "weights")), Symbol("gradient_bytes", getattr(policy, "gradient_bytes"))]);
sizes = dict([]);
[rank, layers] = $tuple([place.data_rank, mine.num_layers]);
for (one of replicated(shape, layout, place)) {
at = $mod(rank, int(getattr(one, "devices")));
for ([part, size] of sharded_bytes(one, weight, gradient, getattr(layout, "zero"), layers, at).items()) {
$set(sizes, part, ($in(part, sizes) ? $add($item(sizes, part), size) : size));
}
if ($in(policy.optimizer, MOMENTS)) {
each = $add($mul($item(MOMENTS, policy.optimizer), policy.moment_bytes), $mul(4n, policy.bytes.master_weights));
each = ($eq(policy.offload, "optimizer") ? 0n : each);
states = $add(states, $mul(each, ($true(layout.zero) ? shard_of(getattr(one, "trained"), getattr(one, "devices"), at) : one.trained)));
}
}
if ($notin(policy.optimizer, MOMENTS)) {
if ($gt(layout.expert, 1n)) {
throw ValueError(("" + "optimizer " + $format(repr(policy.optimizer), "") + " is not counted where experts are shared: use adamw or sgd"));
}
whole = added((function* ($first) { for (const [, term] of $first) yield term; })(optimizer_state(mine, {__proto__: $k, policy: policy}).terms));
states = ($true(layout.zero) ? shard_of(whole, Symbol("dp", getattr(layout, "replicas")), rank) : whole);
}
$set(sizes, Part.OPTIMIZER_STATE, states);
return dict((function* ($first) { for (const [part, size] of $first) yield [part, Item(getattr(part, "value"), $item(GROUPS, part), [$tuple([1n, size])])]; })(sizes.items()));
});
let _newest;
_newest = $def("_newest", "run moment", [], function (run, moment) {
let beside;

beside = $add($sub(int(getattr(moment.gradients, "finished")), $mul(int(getattr(run, "trained")), int(getattr(run.run, "gradient")))), int(getattr(moment.gradients, "newest")));
return Item("newest gradient", getattr(Group, "GRADIENTS"), ($true(beside) ? [$tuple([1n, Symbol("newest_gradient", beside)])] : []));
});
let _in_flight;
_in_flight = $def("_in_flight", "run layout place * last", [], function (run, layout, place, last) {
let of_blocks, others, saved, waiting;

others = Symbol("in_flight", $sub(layout.in_flight(getattr(place, "stage")), 1n));
of_blocks = saved_by_layers(getattr(run, "run"), getattr(run.run.stack, "counts"));
saved = $union(dict((function* ($first) { for (const [one, tensors] of $first) if ($notin(one, MADE_ONCE)) yield [one, tensors]; })(run.shared.items())), of_blocks);
if ($true(last)) {
saved = $union(saved, run.head);
}
waiting = items(getattr(Group, "IN_FLIGHT"), saved);
return [...(function* ($first) { for (const item of $first) yield Item(getattr(item, "name"), getattr(item, "group"), [$tuple([1n, $mul(others, item.bytes)])]); })(waiting)];
});
let _step_temporaries;
_step_temporaries = $def("_step_temporaries", "run shape layout place", [], function (run, shape, layout, place) {
let largest, of_device, on_device, policy, share, sizes;

[policy, on_device] = $tuple([run.policy, device_parameters(shape, layout, place)]);
of_device = replicated(shape, layout, place);
if (($eq(policy.optimizer_step, "fused") || $notin(policy.optimizer, MOMENTS))) {
return step_temporaries(getattr(run, "shape"), policy);
}
share = added((function* ($first) { for (const one of $first) yield ($true(layout.zero) ? shard_of(getattr(one, "trained"), getattr(one, "devices")) : one.trained); })(of_device));
if ($eq(policy.optimizer_step, "foreach")) {
return [$tuple([1n, $mul(4n, share)])];
}
if ($true(run.frozen)) {
sizes = [...(function* ($first) { for (const [, size] of $first) yield size; })(trained_tensors(getattr(run, "shape")))];
} else {
sizes = [...(function* ($first) { for (const [rows, columns] of $first) yield $mul(rows, columns); })(matrices(getattr(run, "shape")))];
sizes = $add(sizes, [...(function* ($first) { for (const name of $first) yield int($item(on_device, name)); })($tuple(["embedding", "positions", "head"]))]);
}
largest = Symbol("largest_tensor", min(int(share), max(sizes)));
return [$tuple([($eq(policy.optimizer, "adamw") ? 2n : 1n), $mul(4n, largest)])];
});
return {GROUPS, MOMENTS, device_memory, fullest, device_forward_pass, _state, _newest, _in_flight, _step_temporaries};
};
$modules["accounting.memory.records"] = () => {
const Breakdown = $load("accounting.breakdown").Breakdown;
const Bytes = $load("accounting.units").Bytes;
const Enum = $load("enum").Enum;
const Term = $load("accounting.formula").Term;
const added = $load("accounting.formula").added;
const dataclass = $load("dataclasses").dataclass;
let Tensors;
Tensors = $item(list, $item(tuple, $tuple([int, Term])));
let Component;
Component = $class("Component", [Enum], false, [], ($c) => {
$c.TOKEN_IDS = "token ids";
$c.TABLES = "tables";
$c.MASK = "mask";
$c.EMBEDDING_NORM = "embedding norm";
$c.NORMS = "norms";
$c.ATTENTION_INPUT = "attention input";
$c.LATENTS = "latents";
$c.QK_NORMS = "query and key norms";
$c.QK_SCALES = "query scales";
$c.QKV = "queries, keys, values";
$c.QKV_COPIES = "queries, keys, values again";
$c.ATTENTION_WEIGHTS = "attention weights";
$c.ATTENTION_OUTPUT = "attention output";
$c.FFN_INPUT = "ffn input";
$c.FFN_HIDDEN = "ffn hidden";
$c.SHARED_FFN_HIDDEN = "shared ffn hidden";
$c.ROUTER = "router";
$c.ADAPTERS_OF_ATTENTION = "adapters of attention";
$c.ADAPTERS_OF_FFN = "adapters of ffn";
$c.WEIGHTS_IN_BF16 = "weights in bf16";
$c.BLOCK_INPUTS = "block inputs";
$c.MATMUL_OUTPUTS = "outputs of matmuls";
$c.FINAL_NORM = "final norm";
$c.HEAD_INPUT = "head input";
$c.HEAD_IN_BF16 = "head in bf16";
$c.LOSS = "loss";
});
let OF_FFN;
OF_FFN = frozenset(set([Component.FFN_INPUT, Component.FFN_HIDDEN, Component.SHARED_FFN_HIDDEN, Component.ROUTER, Component.ADAPTERS_OF_FFN]));
let MADE_ONCE;
MADE_ONCE = frozenset(set([Component.TABLES, Component.MASK]));
let Group;
Group = $class("Group", [Enum], false, [], ($c) => {
$c.PARAMETERS = "parameters";
$c.GRADIENTS = "gradients";
$c.OPTIMIZER_STATE = "optimizer state";
$c.SAVED = "saved";
$c.THIS_BLOCK = "this block";
$c.IN_FLIGHT = "in flight";
$c.TEMPORARY = "temporary";
$c.ALLOCATOR = "allocator";
$c.OVERHEAD = "fixed overhead";
});
let PhaseKind;
PhaseKind = $class("PhaseKind", [Enum], false, [], ($c) => {
$c.FORWARD = "forward";
$c.BACKWARD = "backward";
$c.OPTIMIZER_STEP = "optimizer step";
});
let Item;
Item = $class("Item", [], true, [["name"], ["group"], ["tensors"]], ($c) => {
$c.bytes = property($def("bytes", "self", [], function (self) {
return total_bytes(getattr(self, "tensors"));
}));
});
let items;
items = $def("items", "group components", [], function (group, components) {

return [...(function* ($first) { for (const [component, tensors] of $first) yield Item(("" + $format(group.value, "") + ": " + $format(component.value, "")), group, tensors); })(components.items())];
});
let temporary;
temporary = $def("temporary", "name *tensors", [], function (name, tensors) {

return Item(name, getattr(Group, "TEMPORARY"), list(tensors));
});
let total_bytes;
total_bytes = $def("total_bytes", "tensors", [], function (tensors) {

return added((function* ($first) { for (const [count, size] of $first) yield $mul(count, size); })(tensors));
});
let plain_bytes;
plain_bytes = $def("plain_bytes", "tensors", [], function (tensors) {

return sum((function* ($first) { for (const [count, size] of $first) yield $mul(int(count), int(size)); })(tensors));
});
let Phase;
Phase = $class("Phase", [Breakdown], true, [["kind"], ["moment"], ["groups"]], ($c) => {
$c.by_group = $def("by_group", "self", [], function (self) {
let _, group, sums, term;

sums = dict.fromkeys(Group, 0n);
for ([group, [, term]] of zip(getattr(self, "groups"), getattr(self, "terms"), {__proto__: $k, strict: true})) {
$set(sums, group, $add($item(sums, group), int(term)));
}
return dict((function* ($first) { for (const [group, value] of $first) yield [group, Bytes(value)]; })(sums.items()));
});
});
let phase;
phase = $def("phase", "moment kind alive convention * place=", [""], function (moment, kind, alive, convention, place) {
let groups, item, terms, title;

terms = dict([]);
groups = dict([]);
for (item of alive) {
$set(terms, item.name, ($in(item.name, terms) ? $add($item(terms, item.name), item.bytes) : item.bytes));
$set(groups, item.name, item.group);
}
title = ($true(place) ? ("" + "memory of " + $format(place, "") + ": " + $format(moment, "")) : moment);
return Phase(title, Bytes, tuple(terms.items()), convention, kind, moment, tuple(groups.values()));
});
return {Tensors, Component, OF_FFN, MADE_ONCE, Group, PhaseKind, Item, items, temporary, total_bytes, plain_bytes, Phase, phase};
};
$modules["accounting.units"] = () => {
let Quantity;
Quantity = $class("Quantity", [], false, [], ($c) => {
$c.unit = "";
$c._plain = float;
$c._with_unit = $def("_with_unit", "self value", [], function (self, value) {
let unit;
unit = type(self);
return unit(value);
});
$c._other = $def("_other", "self other verb", [], function (self, other, verb) {
let name, words;

name = type(self).__name__;
if (($true(isinstance(other, Quantity)) && $isnot(type(other), type(self)))) {
words = ("" + "cannot " + $format(verb, "") + " " + $format(name, "") + " and " + $format(type(other).__name__, "") + ": they are different units");
throw TypeError(("" + $format(words, "") + "; convert one of them with int() or float() if this is meant"));
}
if (($is(self._plain, int) && !$true(isinstance(other, int)) && $ne(verb, "compare"))) {
words = ("" + "cannot " + $format(verb, "") + " " + $format(name, "") + " and " + $format(repr(other), "") + ": " + $format(name, "") + " are whole numbers");
throw TypeError(("" + $format(words, "") + "; round it with int(), or convert the other with float()"));
}
return ($true(isinstance(other, Quantity)) ? self._plain(other) : other);
});
$c.__add__ = $def("__add__", "self other", [], function (self, other) {
return self._with_unit($add(self._plain(self), self._other(other, "add")));
});
$c.__radd__ = $c.__add__;
$c.__sub__ = $def("__sub__", "self other", [], function (self, other) {
return self._with_unit($sub(self._plain(self), self._other(other, "subtract")));
});
$c.__rsub__ = $def("__rsub__", "self other", [], function (self, other) {
return self._with_unit($sub(self._other(other, "subtract"), self._plain(self)));
});
$c.__neg__ = $def("__neg__", "self", [], function (self) {
return self._with_unit($neg(self._plain(self)));
});
$c.__abs__ = $def("__abs__", "self", [], function (self) {
return self._with_unit(abs(self._plain(self)));
});
$c.__mul__ = $def("__mul__", "self other", [], function (self, other) {
if ($true(isinstance(other, Quantity))) {
throw TypeError(("" + $format(type(self).__name__, "") + " times " + $format(type(other).__name__, "") + " has no meaning here"));
}
if (($is(self._plain, int) && !$true(isinstance(other, int)))) {
return NotImplemented;
}
return self._with_unit($mul(self._plain(self), other));
});
$c.__rmul__ = $c.__mul__;
$c.__eq__ = $def("__eq__", "self other", [], function (self, other) {
if ($true(isinstance(other, Quantity))) {
return $and($is(type(other), type(self)), () => bool($eq(self._plain(self), self._plain(other))));
}
return bool($eq(self._plain(self), other));
});
$c.__ne__ = $def("__ne__", "self other", [], function (self, other) {
return !$eq(self, other);
});
$c.__hash__ = $def("__hash__", "self", [], function (self) {
return hash(self._plain(self));
});
$c.__lt__ = $def("__lt__", "self other", [], function (self, other) {
return bool($lt(self._plain(self), self._other(other, "compare")));
});
$c.__le__ = $def("__le__", "self other", [], function (self, other) {
return bool($le(self._plain(self), self._other(other, "compare")));
});
$c.__gt__ = $def("__gt__", "self other", [], function (self, other) {
return bool($gt(self._plain(self), self._other(other, "compare")));
});
$c.__ge__ = $def("__ge__", "self other", [], function (self, other) {
return bool($ge(self._plain(self), self._other(other, "compare")));
});
});
let Count;
Count = $class("Count", [Quantity, int], false, [], ($c) => {
$c._plain = int;
$c.__new__ = $def("__new__", "cls value=", [0n], function (cls, value) {
if (($true(isinstance(value, float)) && $ne(value, int(value)))) {
throw TypeError(("" + "expected a whole number of " + $format(cls.unit, "") + ", got " + $format(repr(value), "") + ": round it with int()"));
}
return int.__new__(cls, value);
});
$c.__truediv__ = $def("__truediv__", "self other", [], function (self, other) {
let result;
result = _QUOTIENTS.get($tuple([type(self), type(other)]));
if ($isnot(result, null)) {
return result($div(int(self), float(other)));
}
return $div(int(self), ($true(isinstance(other, Quantity)) ? self._other(other, "divide") : other));
});
$c.__floordiv__ = $def("__floordiv__", "self other", [], function (self, other) {
let quotient;
quotient = $floordiv(int(self), self._other(other, "divide"));
return ($true(isinstance(other, Count)) ? quotient : type(self)(quotient));
});
$c.__mod__ = $def("__mod__", "self other", [], function (self, other) {
return type(self)($mod(int(self), self._other(other, "divide")));
});
$c.__divmod__ = $def("__divmod__", "self other", [], function (self, other) {
return $tuple([$floordiv(self, other), $mod(self, other)]);
});
$c.__repr__ = $def("__repr__", "self", [], function (self) {
return ("" + $format(type(self).__name__, "") + "(" + $format(int(self), ("" + "_")) + ")");
});
$c.__str__ = $def("__str__", "self", [], function (self) {
return ("" + $format(int(self), ("" + ",")));
});
});
let Measure;
Measure = $class("Measure", [Quantity, float], false, [], ($c) => {
$c.__truediv__ = $def("__truediv__", "self other", [], function (self, other) {
let quotient;
quotient = $div(float(self), self._other(other, "divide"));
return ($true(isinstance(other, Measure)) ? quotient : type(self)(quotient));
});
$c.__repr__ = $def("__repr__", "self", [], function (self) {
return ("" + $format(type(self).__name__, "") + "(" + $format(repr(float(self)), "") + ")");
});
});
let Parameters;
Parameters = $class("Parameters", [Count], false, [], ($c) => {
$c.unit = "parameters";
});
let Tokens;
Tokens = $class("Tokens", [Count], false, [], ($c) => {
$c.unit = "tokens";
});
let FLOPs;
FLOPs = $class("FLOPs", [Count], false, [], ($c) => {
$c.unit = "FLOP";
});
let Bytes;
Bytes = $class("Bytes", [Count], false, [], ($c) => {
$c.unit = "B";
});
let Seconds;
Seconds = $class("Seconds", [Measure], false, [], ($c) => {
$c.unit = "s";
});
let FLOPRate;
FLOPRate = $class("FLOPRate", [Measure], false, [], ($c) => {
$c.unit = "FLOP/s";
});
let ByteRate;
ByteRate = $class("ByteRate", [Measure], false, [], ($c) => {
$c.unit = "B/s";
});
let TokenRate;
TokenRate = $class("TokenRate", [Measure], false, [], ($c) => {
$c.unit = "tokens/s";
});
let _QUOTIENTS;
_QUOTIENTS = dict([[$tuple([FLOPs, FLOPRate]), Seconds], [$tuple([FLOPs, Seconds]), FLOPRate], [$tuple([Bytes, ByteRate]), Seconds], [$tuple([Bytes, Seconds]), ByteRate], [$tuple([Tokens, TokenRate]), Seconds], [$tuple([Tokens, Seconds]), TokenRate]]);
let DECIMAL;
DECIMAL = $tuple(["", "k", "M", "G", "T", "P", "E", "Z", "Y"]);
let BINARY;
BINARY = $tuple(["", "Ki", "Mi", "Gi", "Ti", "Pi"]);
let human;
human = $def("human", "quantity * binary=", [false], function (quantity, binary) {
let base, digits, gap, power, prefixes, unit, value;

unit = getattr(quantity, "unit", "");
if ($true(isinstance(quantity, Seconds))) {
return _clock(float(quantity));
}
[base, prefixes] = ($true(binary) ? $tuple([1024.0, BINARY]) : $tuple([1000.0, DECIMAL]));
if (($true(binary) && !$true(isinstance(quantity, Bytes)))) {
throw ValueError(("" + "binary prefixes are for bytes only, and this is " + $format($or(unit, () => "a plain number"), "") + "; use binary=False"));
}
[value, power] = $tuple([float(quantity), 0n]);
while (($ge(abs(value), $sub(base, 0.005)) && $lt(power, $sub(len(prefixes), 1n)))) {
value = $div(value, base);
power = $add(power, 1n);
}
digits = (($eq(power, 0n) && $eq(value, int(value))) ? ("" + $format(value, ("" + ".0f"))) : ("" + $format(value, ("" + ".2f"))));
gap = (($gt(len(unit), 6n) && $true(power)) ? " " : "");
return ("" + $format(digits, "") + " " + $format($item(prefixes, power), "") + $format(gap, "") + $format(unit, "")).rstrip();
});
let _clock;
_clock = $def("_clock", "seconds", [], function (seconds) {
let name, size;
for ([size, name] of $tuple([$tuple([$mul(365.25, 86400n), "years"]), $tuple([86400n, "days"]), $tuple([3600n, "h"]), $tuple([60n, "min"])])) {
if ($ge(seconds, $mul(2n, size))) {
return ("" + $format($div(seconds, size), ("" + ",.2f")) + " " + $format(name, ""));
}
}
if ($ge(seconds, 0.1)) {
return ("" + $format(seconds, ("" + ".2f")) + " s");
}
return (($ge(seconds, 1e-05) || !$true(seconds)) ? ("" + $format($mul(seconds, 1000.0), ("" + ".3f")) + " ms") : ("" + $format($mul(seconds, 1000000.0), ("" + ".3f")) + " µs"));
});
return {Quantity, Count, Measure, Parameters, Tokens, FLOPs, Bytes, Seconds, FLOPRate, ByteRate, TokenRate, _QUOTIENTS, DECIMAL, BINARY, human, _clock};
};
$modules["accounting.breakdown"] = () => {
const Count = $load("accounting.units").Count;
const Mapping = $load("collections.abc").Mapping;
const constant = $load("accounting.formula").constant;
const dataclass = $load("dataclasses").dataclass;
let symbols;
symbols = () => $json("{\"batch\": \"sequences in a batch\", \"seq\": \"positions of a sequence\", \"context\": \"positions already in the cache, the new one included\", \"vocab\": \"rows of the vocabulary, padding included\", \"vocab_unpadded\": \"rows of the vocabulary without padding\", \"max_seq\": \"longest sequence the model reads: rows of learned positions, or of the table of rotations\", \"n_layers\": \"layers\", \"window_layers\": \"layers with a window\", \"full_layers\": \"layers without a window\", \"softmax_layers\": \"layers with softmax attention, where others have none\", \"latent_layers\": \"layers with latent attention, where others have none\", \"delta_layers\": \"layers with linear attention (Gated DeltaNet)\", \"mamba_layers\": \"layers with a Mamba state\", \"lightning_layers\": \"layers with lightning attention\", \"convolution_layers\": \"layers with a short convolution in place of attention\", \"altup_layers\": \"layers that mix several residual streams, the first apart\", \"key_heads\": \"heads of queries and keys in linear attention\", \"value_heads\": \"heads of values in linear attention\", \"key_dim\": \"width of a key head in linear attention\", \"kernel\": \"positions of the convolution of a layer with a state\", \"state_heads\": \"heads of a Mamba state\", \"state_width\": \"width of a head of it\", \"state_dim\": \"width of its keys and queries\", \"groups\": \"groups of heads that share those\", \"channels\": \"channels, each with a Mamba state of its own\", \"step_rank\": \"width of the latent of their steps\", \"index_heads\": \"heads that choose the positions that attention sees\", \"index_dim\": \"width of one of them\", \"expert_elements\": \"elements of the matrices of the experts\", \"other_elements\": \"elements of the blocks beside the matrices of the experts\", \"rotated_layers\": \"layers with rotary positions, where others have none\", \"unrotated_layers\": \"layers without\", \"expert_rotated_layers\": \"layers with experts and rotary positions\", \"expert_unrotated_layers\": \"layers with experts and without rotary positions\", \"dense_rotated_layers\": \"layers without experts and with rotary positions\", \"dense_unrotated_layers\": \"layers without both\", \"value_layers\": \"layers with a value embedding\", \"d_model\": \"width of the residual stream\", \"n_heads\": \"query heads\", \"n_kv_heads\": \"key and value heads\", \"head_dim\": \"width of one head\", \"d_ff\": \"width of the feed-forward layer, of one expert where there are several\", \"n_experts\": \"experts in a layer\", \"held_experts\": \"experts of a layer whose weights a device has\", \"active_experts\": \"experts that a token passes in a layer\", \"expert_layers\": \"layers with experts\", \"dense_layers\": \"layers with one feed-forward layer where the others have experts\", \"dense_d_ff\": \"width of the feed-forward layer of those\", \"shared_d_ff\": \"width of the feed-forward layer that every token passes beside its experts\", \"q_rank\": \"width of the latent of queries\", \"kv_rank\": \"width of the latent of keys and values\", \"nope_dim\": \"part of a query and key that is not rotated\", \"rope_dim\": \"part of a query and key that is rotated\", \"value_dim\": \"width of a value\", \"window\": \"positions that a sliding window shows, the query's own included\", \"n_params\": \"parameters; of Muon those that are left to AdamW\", \"embedding_params\": \"parameters of the embedding, the learned positions and the head\", \"lora_rank\": \"rank of the adapters\", \"adapter_params\": \"parameters of the adapters, which alone are trained\", \"block_adapters\": \"of them, those of one block\", \"block_params\": \"parameters of one block, its norms not among them\", \"expert_params\": \"parameters of the experts on a device\", \"block_experts\": \"parameters of the experts of one block on a device\", \"block_weights\": \"elements of the matrices of one block\", \"n_tensors\": \"tensors that the parameters are\", \"ffn_params\": \"parameters of one block's feed-forward layer\", \"expert_ffn_params\": \"parameters of the feed-forward layers of one block with experts\", \"dense_ffn_params\": \"parameters of the feed-forward layer of one block without\", \"attention_params\": \"parameters of one block's attention\", \"block_scores\": \"scores that one head saves of a block of queries\", \"chunk_rows\": \"rows of logits alive at once in the chunked loss\", \"act_bytes\": \"bytes of one element that matrix multiplications read and give\", \"operand_bytes\": \"bytes of one element that a matrix multiplication of a block reads\", \"residual_bytes\": \"bytes of one element of the residual stream\", \"weight_bytes\": \"bytes of one weight\", \"gradient_bytes\": \"bytes of one gradient where gradients are added up\", \"overhead_bytes\": \"bytes of driver, context and libraries, as given\", \"dp\": \"devices that hold the same weights: data-parallel replicas and those that share sequences\", \"edp\": \"of them, those that hold the same experts\", \"cp\": \"devices that share a sequence (context parallelism)\", \"ep\": \"devices that share the experts (expert parallelism)\", \"tp\": \"devices that share a layer (tensor parallelism)\", \"replicated_params\": \"parameters that every tensor-parallel device holds\", \"in_flight\": \"other micro-batches in flight\", \"micro_batches\": \"micro-batches of a step\", \"last_shard\": \"what is left for the last shard\", \"newest_gradient\": \"bytes of the newest gradient\", \"matrix_rows\": \"smaller side of the largest matrix\", \"matrix_columns\": \"larger side of the largest matrix\", \"largest_tensor\": \"elements of the largest tensor\", \"quantised_params\": \"elements of tensors large enough for 8-bit states\", \"scale_blocks\": \"their blocks of 256\", \"muon_params\": \"elements of the matrices of the blocks\", \"block_elements\": \"elements of the weights of the blocks, of experts those that are read\"}");
let Breakdown;
Breakdown = $class("Breakdown", [Mapping], true, [["title"], ["unit"], ["terms"], ["convention"]], ($c) => {
$c.total = property($def("total", "self", [], function (self) {
return self.unit(sum((function* ($first) { for (const [, term] of $first) yield int(term); })(self.terms)));
}));
$c.formula = property($def("formula", "self", [], function (self) {
return dict((function* ($first) { for (const [name, term] of $first) yield [name, term.text()]; })(self.terms));
}));
$c.explain = $def("explain", "self", [], function (self) {
return dict((function* ($first) { for (const [name, term] of $first) yield [name, term.text({__proto__: $k, values: true})]; })(self.terms));
});
$c.__getitem__ = $def("__getitem__", "self name", [], function (self, name) {
let candidate, term;
for ([candidate, term] of self.terms) {
if ($eq(candidate, name)) {
return self.unit(int(term));
}
}
throw KeyError(("" + $format(repr(name), "") + " is not a component of " + $format(self.title, "") + "; it has " + $format(", ".join(self), "")));
});
$c.__iter__ = $def("__iter__", "self", [], function (self) {
return (function* ($first) { for (const [name, ] of $first) yield name; })(self.terms);
});
$c.__len__ = $def("__len__", "self", [], function (self) {
return len(getattr(self, "terms"));
});
$c.__int__ = $def("__int__", "self", [], function (self) {
return int(getattr(self, "total"));
});
});
let breakdown;
breakdown = $def("breakdown", "title unit terms convention", [], function (title, unit, terms, convention) {

return Breakdown(title, unit, tuple((function* ($first) { for (const [name, term] of $first) yield $tuple([name, constant(term)]); })(terms.items())), convention);
});
return {symbols, Breakdown, breakdown};
};
$modules["accounting.formula"] = () => {
let _ATOM, _PRODUCT, _QUOTIENT, _SUM;
[_SUM, _QUOTIENT, _PRODUCT, _ATOM] = $tuple([1n, 2n, 3n, 4n]);
let Term;
Term = $class("Term", [int], false, [], ($c) => {
$c.__new__ = $def("__new__", "cls value operation= operands=", ["", $tuple([])], function (cls, value, operation, operands) {
let term;
term = int.__new__(cls, value);
term._operation = operation;
term._operands = operands;
return term;
});
$c.__add__ = $def("__add__", "self other", [], function (self, other) {
if (($is(type(other), int) && $eq(other, 0n))) {
return self;
}
return Term(int.__add__(self, _whole(other)), "+", $tuple([self, other]));
});
$c.__radd__ = $def("__radd__", "self other", [], function (self, other) {
if (($is(type(other), int) && $eq(other, 0n))) {
return self;
}
return Term(int.__add__(self, _whole(other)), "+", $tuple([other, self]));
});
$c.__sub__ = $def("__sub__", "self other", [], function (self, other) {
if (($is(type(other), int) && $eq(other, 0n))) {
return self;
}
return Term(int.__sub__(self, _whole(other)), "-", $tuple([self, other]));
});
$c.__rsub__ = $def("__rsub__", "self other", [], function (self, other) {
return Term($sub(_whole(other), int(self)), "-", $tuple([other, self]));
});
$c.__mul__ = $def("__mul__", "self other", [], function (self, other) {
if (($is(type(other), int) && $eq(other, 1n))) {
return self;
}
return Term(int.__mul__(self, _whole(other)), "·", $tuple([self, other]));
});
$c.__rmul__ = $def("__rmul__", "self other", [], function (self, other) {
if (($is(type(other), int) && $eq(other, 1n))) {
return self;
}
return Term(int.__mul__(self, _whole(other)), "·", $tuple([other, self]));
});
$c.__floordiv__ = $def("__floordiv__", "self other", [], function (self, other) {
if (($is(type(other), int) && $eq(other, 1n))) {
return self;
}
return Term(int.__floordiv__(self, _whole(other)), "//", $tuple([self, other]));
});
$c.__mod__ = $def("__mod__", "self other", [], function (self, other) {
return Term(int.__mod__(self, _whole(other)), "%", $tuple([self, other]));
});
$c.text = $def("text", "self * values=", [false], function (self, values) {

return $item(self._render(values), 0n);
});
$c._render = $def("_render", "self values", [], function (self, values) {
let binding, left, right;
if (!$true(self._operands)) {
return (($true(values) || !$true(self._operation)) ? $tuple([("" + $format(int(self), ("" + ","))), _ATOM]) : $tuple([self._operation, _ATOM]));
}
if ($eq(self._operation, "+")) {
return $tuple([" + ".join((function* ($first) { for (const term of $first) yield $item(_render(term, values), 0n); })(self._addends())), _SUM]);
}
[left, right] = (function* ($first) { for (const operand of $first) yield _render(operand, values); })(self._operands);
if ($eq(self._operation, "-")) {
return $tuple([("" + $format($item(left, 0n), "") + " - " + $format(_bracket(right, _QUOTIENT), "")), _SUM]);
}
if ($in(self._operation, $tuple(["//", "%"]))) {
return $tuple([("" + $format(_bracket(left, _QUOTIENT), "") + $format(self._operation, "") + $format(_bracket(right, _ATOM), "")), _QUOTIENT]);
}
binding = ($eq($item(left, 1n), _QUOTIENT) ? _QUOTIENT : _PRODUCT);
return $tuple([("" + $format(_bracket(left, _QUOTIENT), "") + "·" + $format(_bracket(right, _PRODUCT), "")), binding]);
});
$c._addends = $def("_addends", "self", [], function (self) {
let first, last, terms;

terms = [];
first = self;
while (($true(isinstance(first, Term)) && $eq(first._operation, "+"))) {
[first, last] = first._operands;
terms.append(last);
}
return [first, ...reversed(terms)];
});
});
let Symbol;
Symbol = $def("Symbol", "name value", [], function (name, value) {

return Term(value, name);
});
let constant;
constant = $def("constant", "value", [], function (value) {

return ($true(isinstance(value, Term)) ? value : Term(value));
});
let added;
added = $def("added", "terms", [], function (terms) {
let term, total;

total = Term(0n);
for (term of terms) {
if (($true(term._operands) || $true(term))) {
total = ((!$true(total._operands) && $eq(total, 0n)) ? term : $add(total, term));
}
}
return total;
});
let _whole;
_whole = $def("_whole", "operand", [], function (operand) {

if (!$true(isinstance(operand, int))) {
throw TypeError(("" + "a formula is of whole numbers, and " + $format(repr(operand), "") + " is none: use // by an int, or float() first"));
}
return operand;
});
let _render;
_render = $def("_render", "operand values", [], function (operand, values) {
return ($true(isinstance(operand, Term)) ? operand._render(values) : $tuple([("" + $format(int(operand), ("" + ","))), _ATOM]));
});
let _bracket;
_bracket = $def("_bracket", "rendered at_least", [], function (rendered, at_least) {
let binding, text;
[text, binding] = rendered;
return ($ge(binding, at_least) ? text : ("" + "(" + $format(text, "") + ")"));
});
return {_ATOM, _PRODUCT, _QUOTIENT, _SUM, Term, Symbol, constant, added, _whole, _render, _bracket};
};
$modules["accounting.counting.parameters"] = () => {
const Attention = $load("accounting.layer").Attention;
const Dimensions = $load("accounting.counting.dimensions").Dimensions;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const Parameters = $load("accounting.units").Parameters;
const Symbol = $load("accounting.formula").Symbol;
const TransformerShape = $load("accounting.shape").TransformerShape;
const adapter_elements = $load("accounting.counting.adapters").adapter_elements;
const adapter_tensors = $load("accounting.counting.adapters").adapter_tensors;
const added = $load("accounting.formula").added;
const attention_groups = $load("accounting.counting.layers").attention_groups;
const attention_matrices = $load("accounting.counting.dimensions").attention_matrices;
const breakdown = $load("accounting.breakdown").breakdown;
const ffn_layers = $load("accounting.counting.layers").ffn_layers;
const instance = $load("accounting.checks").instance;
const layer_matrices = $load("accounting.counting.layers").layer_matrices;
const lru_cache = $load("functools").lru_cache;
const no_value_embeddings = $load("accounting.shape").no_value_embeddings;
const small_tensors = $load("accounting.counting.dimensions").small_tensors;
const stack = $load("accounting.counting.layers").stack;
let parameters;
parameters = lru_cache({__proto__: $k, maxsize: 16n})($def("parameters", "shape * active=", [false], function (shape, active) {
let attention, equal, ffn, layers, layers_of, n, norms, one, router, sizes;

instance("shape", shape, TransformerShape, "SHAPES");
n = Dimensions(shape);
attention = added((function* ($first) { for (const [one, layers] of $first) yield $mul(layers, added([_attention_elements(shape, one), ...$item(small_tensors(shape, one), "others")])); })(attention_groups(shape).items()));
layers_of = ffn_layers(shape);
ffn = added((function* ($first) { for (const [one, layers] of $first) yield $mul(layers, _ffn_elements(shape, one, active)); })(layers_of.items()));
router = added((function* ($first) { for (const [one, layers] of $first) for (const size of _router_sizes(shape, one)) yield $mul(layers, size); })(layers_of.items()));
norms = $mul(shape.weighted_norms, ($true(shape.biased_norm) ? $mul(2n, n.d_model) : n.d_model));
for ([one, layers] of attention_groups(shape).items()) {
if ($true((sizes = $item(small_tensors(shape, one), "norms")))) {
equal = $and($eq(len(sizes), 2n), () => $eq($item(sizes, 0n).text(), $item(sizes, 1n).text()));
norms = $add(norms, $mul(layers, ($true(equal) ? $mul(2n, $item(sizes, 0n)) : added(sizes))));
}
}
return breakdown($add("parameters", ($true(active) ? " (active)" : "")), Parameters, dict([["embedding", $mul(n.vocab, n.d_model)], ["positions", ($eq(shape.position, "learned") ? $mul(n.max_seq, n.d_model) : 0n)], ["attention", attention], ...value_embeddings(shape).items(), ["ffn", ffn], ["router", router], ["norms", norms], ["head", $add(($true(shape.tied_embeddings) ? 0n : $mul(n.vocab, n.d_model)), ($true(shape.head_bias) ? n.vocab : 0n))], ..._adapters(shape, active).items()]), $add("every trainable element once: ", ($true(shape.tied_embeddings) ? "the tied head is the embedding and counts nothing" : "the head is its own matrix")));
}));
let _attention_elements;
_attention_elements = $def("_attention_elements", "shape attention", [], function (shape, attention) {
let n, queries;
n = Dimensions(shape);
if (($true(isinstance(attention, Attention)) && !$true(attention.reuses))) {
queries = ($true(attention.gated) ? $mul(2n, n.n_heads) : n.n_heads);
return $add($mul($mul(n.d_model, n.head_dim), $add(queries, $mul(2n, n.n_kv_heads))), $mul($mul(n.n_heads, n.head_dim), n.d_model));
}
return added(attention_matrices(shape, attention).values());
});
let _ffn_elements;
_ffn_elements = $def("_ffn_elements", "shape ffn active", [], function (shape, ffn, active) {
let m, total;

m = FfnDimensions(shape, ffn);
total = _one_ffn(shape, getattr(m, "d_ff"));
if ($isnot(ffn.experts, null)) {
total = $mul(($true(active) ? m.active_experts : m.held_experts), total);
}
if ($isnot(ffn.shared_d_ff, null)) {
total = $add(total, _one_ffn(shape, getattr(m, "shared_d_ff")));
}
return ($true(ffn.shared_gate) ? $add(total, Dimensions(shape).d_model) : total);
});
let _one_ffn;
_one_ffn = $def("_one_ffn", "shape width", [], function (shape, width) {
let elements, matrices, n;
[n, matrices] = $tuple([Dimensions(shape), shape.matrices_of_ffn]);
elements = $mul($mul(matrices, n.d_model), width);
return ($true(shape.biased_ffn) ? $add($add(elements, $mul($sub(matrices, 1n), width)), n.d_model) : elements);
});
let _router_sizes;
_router_sizes = $def("_router_sizes", "shape ffn", [], function (shape, ffn) {
let experts;
if ($is(ffn.experts, null)) {
return [];
}
experts = FfnDimensions(shape, ffn).n_experts;
return [$mul(Dimensions(shape).d_model, experts), ...($true(ffn.router_bias) ? [experts] : [])];
});
let value_embeddings;
value_embeddings = $def("value_embeddings", "shape", [], function (shape) {
let layers, n;

if (!$true(shape.value_embeddings)) {
return dict([]);
}
n = Dimensions(shape);
layers = Symbol("value_layers", getattr(shape, "value_embeddings"));
return dict([["value embeddings", $mul($mul(layers, n.n_kv_heads), $add($mul(n.vocab, n.head_dim), n.d_model))]]);
});
let _adapters;
_adapters = $def("_adapters", "shape active", [], function (shape, active) {
let ffn;
if ($is(shape.lora_rank, null)) {
return dict([]);
}
[ffn] = shape.ffns;
return dict([["adapters", $mul(Dimensions(shape).n_layers, adapter_elements(shape, ($true(active) ? ffn.active : ffn.held)))]]);
});
let trained_parameters;
trained_parameters = $def("trained_parameters", "shape", [], function (shape) {
let counted;

counted = parameters(shape);
return int(($is(shape.lora_rank, null) ? counted.total : $item(counted, "adapters")));
});
let trained_symbol;
trained_symbol = $def("trained_symbol", "shape", [], function (shape) {

return Symbol(($is(shape.lora_rank, null) ? "n_params" : "adapter_params"), trained_parameters(shape));
});
let block_parameters;
block_parameters = $def("block_parameters", "shape kind", [], function (shape, kind) {
let attention, one;

attention = 0n;
for (one of $tuple([kind.attention, kind.attention.beside])) {
if ($isnot(one, null)) {
attention = $add(attention, $add(int(_attention_elements(shape, one)), sum($item(small_tensors(shape, one), "others"))));
}
}
return $tuple([attention, $add(int(_ffn_elements(shape, getattr(kind, "ffn"), false)), sum(_router_sizes(shape, getattr(kind, "ffn"))))]);
});
let expert_parameters;
expert_parameters = $def("expert_parameters", "shape", [], function (shape) {

return sum((function* ($first) { for (const [one, count] of $first) if ($true(one.experts)) yield $mul($mul(count, one.held), expert_elements(shape, one)); })(shape.ffns.items()));
});
let expert_elements;
expert_elements = $def("expert_elements", "shape ffn", [], function (shape, ffn) {

return int(_one_ffn(shape, getattr(FfnDimensions(shape, ffn), "d_ff")));
});
let expert_matrices;
expert_matrices = $def("expert_matrices", "shape ffn", [], function (shape, ffn) {

return $mul($mul(shape.matrices_of_ffn, shape.d_model), $or(ffn.d_ff, () => shape.d_ff));
});
let matrices;
matrices = $def("matrices", "shape", [], function (shape) {
let columns, count, counts, key, kind, layers, rows;

no_value_embeddings(shape, "each tensor of the parameters");
counts = dict([]);
for ([kind, layers] of stack(shape).counts.items()) {
for ([rows, columns, count] of layer_matrices(shape, kind)) {
key = $tuple([min(rows, columns), max(rows, columns)]);
$set(counts, key, $add(counts.get(key, 0n), $mul(count, int(layers))));
}
}
return counts;
});
let block_weights;
block_weights = $def("block_weights", "shape", [], function (shape) {

return $floordiv(sum((function* ($first) { for (const [[rows, columns], count] of $first) yield $mul($mul(rows, columns), count); })(matrices(shape).items())), shape.num_layers);
});
let other_tensors;
other_tensors = $def("other_tensors", "shape", [], function (shape) {
let attention, count, d, ffn, gates, layers, merged, sizes, small;

d = shape.d_model;
sizes = [$tuple([($true(shape.tied_embeddings) ? 1n : 2n), $mul(shape.vocab_rows, d)])];
if ($eq(shape.position, "learned")) {
sizes.append($tuple([1n, $mul(int(getattr(Dimensions(shape), "max_seq")), d)]));
}
for ([attention, layers] of attention_groups(shape).items()) {
small = small_tensors(shape, attention);
sizes = $add(sizes, [...(function* ($first) { for (const size of $first) yield $tuple([int(layers), int(size)]); })($tuple([...$item(small, "others"), ...$item(small, "norms")]))]);
}
if ($true(shape.head_bias)) {
sizes.append($tuple([1n, shape.vocab_rows]));
}
for ([ffn, count] of shape.ffns.items()) {
if (!$true(ffn.d_ff)) {
continue;
}
gates = $sub(shape.matrices_of_ffn, 1n);
merged = (($true(shape.plain) || $isnot(ffn.experts, null)) ? gates : 1n);
if ($true(shape.biased_ffn)) {
sizes = $add(sizes, [$tuple([$floordiv($mul($mul(count, ffn.held), gates), merged), $mul(merged, $or(ffn.d_ff, () => 0n))]), $tuple([$mul(count, ffn.held), d])]);
if ($isnot(ffn.shared_d_ff, null)) {
sizes = $add(sizes, [$tuple([$mul(count, gates), ffn.shared_d_ff]), $tuple([count, d])]);
}
}
if ($true(ffn.router_bias)) {
sizes.append($tuple([count, $or(ffn.experts, () => 0n)]));
}
}
if ($true(shape.weighted_norms)) {
sizes.append($tuple([$mul(shape.weighted_norms, ($true(shape.biased_norm) ? 2n : 1n)), d]));
}
return sizes;
});
let tensors;
tensors = $def("tensors", "shape", [], function (shape) {
let inside;

inside = [...(function* ($first) { for (const [[rows, columns], count] of $first) yield $tuple([count, $mul(rows, columns)]); })(matrices(shape).items())];
return $add($add(inside, other_tensors(shape)), adapter_tensors(shape));
});
let trained_tensors;
trained_tensors = $def("trained_tensors", "shape", [], function (shape) {

return ($is(shape.lora_rank, null) ? tensors(shape) : adapter_tensors(shape));
});
return {parameters, _attention_elements, _ffn_elements, _one_ffn, _router_sizes, value_embeddings, _adapters, trained_parameters, trained_symbol, block_parameters, expert_parameters, expert_elements, expert_matrices, matrices, block_weights, other_tensors, tensors, trained_tensors};
};
$modules["accounting.counting.layers"] = () => {
const Attention = $load("accounting.layer").Attention;
const LatentAttention = $load("accounting.layer").LatentAttention;
const Mixer = $load("accounting.layer").Mixer;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const dataclass = $load("dataclasses").dataclass;
const lru_cache = $load("functools").lru_cache;
const replace = $load("dataclasses").replace;
const without_window = $load("accounting.layer").without_window;
let Stack;
Stack = $class("Stack", [], true, [["counts"], ["names"], ["ends"]], ($c) => {

});
let stack;
stack = lru_cache({__proto__: $k, maxsize: 64n})($def("stack", "shape", [], function (shape) {
let count, counts, depth, ends, from_top, highest, kind, layers, lowest, names, period, places;

[layers, period] = $tuple([shape.num_layers, $add(len(getattr(shape, "leading")), len(getattr(shape, "layers")))]);
if ($eq(len(getattr(shape, "matrix_kinds")), 1n)) {
[[kind, count]] = shape.matrix_kinds.items();
depth = Symbol("n_layers", count);
return Stack(dict([[kind, depth]]), dict([[kind, ""]]), $tuple([$tuple(["last", kind, dict([[kind, $sub(depth, 1n)]])]), $tuple(["first", kind, dict([[kind, Term(0n)]])])]));
}
lowest = dict((function* ($first) { for (const at of $first) yield [without_window(shape.kind_at(at)), at]; })(reversed(range(min(layers, period)))));
places = [...range(min(layers, len(getattr(shape, "leading")))), ...range(max(len(getattr(shape, "leading")), $sub(layers, period)), layers)];
highest = dict((function* ($first) { for (const at of $first) yield [without_window(shape.kind_at(at)), at]; })(places));
from_top = sorted(highest, {__proto__: $k, key: ((kind) => $neg($item(highest, kind)))});
names = _names(shape);
counts = dict((function* ($first) { for (const kind of $first) yield [kind, Symbol("_".join([...$item(names, kind).$split(), "layers"]), $item(shape.matrix_kinds, kind))]; })(from_top));
ends = $add([...(function* ($first) { for (const [kind, at] of $first) yield $tuple([at, "last", kind]); })(highest.items())], [...(function* ($first) { for (const [kind, at] of $first) yield $tuple([at, "first", kind]); })(lowest.items())]);
return Stack(counts, names, tuple((function* ($first) { for (const [at, name, kind] of $first) yield $tuple([("" + $format(name, "") + " " + $format($item(names, kind), "")), kind, _below(shape, counts, at)]); })(sorted(ends, {__proto__: $k, key: ((end) => $neg($item(end, 0n)))}))));
}));
let _below;
_below = $def("_below", "shape counts depth", [], function (shape, counts, depth) {
let below, kind, number;

below = dict.fromkeys(counts, 0n);
for ([kind, number] of shape.counts_below(depth).items()) {
$set(below, without_window(kind), $add($item(below, without_window(kind)), number));
}
return dict((function* ($first) { for (const [kind, count] of $first) yield [kind, ($true($item(below, kind)) ? $sub(count, $sub(int(count), $item(below, kind))) : Term(0n))]; })(counts.items()));
});
let _names;
_names = $def("_names", "shape", [], function (shape) {
let kind, name, names, words;

names = dict([]);
for (kind of shape.matrix_kinds) {
words = ($gt(len(getattr(shape, "ffns")), 1n) ? [ffn_name(shape, getattr(kind, "ffn"))] : []);
if ($gt(len(set((function* ($first) { for (const one of $first) yield attention_name(one); })(shape.attentions))), 1n)) {
words.append(attention_name(getattr(kind, "attention")));
} else {
if ($gt(len(set((function* ($first) { for (const one of $first) yield one.attention.rotated; })(shape.matrix_kinds))), 1n)) {
words.append(($true(kind.attention.rotated) ? "rotated" : "unrotated"));
}
}
name = " ".join(words);
$set(names, kind, ($notin(name, names.values()) ? name : ("" + $format(name, "") + " " + $format($add(len(names), 1n), "")).strip()));
}
return names;
});
let ffn_name;
ffn_name = $def("ffn_name", "shape ffn", [], function (shape, ffn) {
let alike, number;

alike = [...(function* ($first) { for (const one of $first) if ($eq($is(one.experts, null), $is(ffn.experts, null))) yield one; })(shape.ffns)];
number = ($true(alike.index(ffn)) ? ("" + $format($add(alike.index(ffn), 1n), "")) : "");
return $add(($is(ffn.experts, null) ? "dense" : "expert"), number);
});
let attention_name;
attention_name = $def("attention_name", "attention", [], function (attention) {

if ($true(isinstance(attention, Mixer))) {
return $item(attention.name.$split(), 0n);
}
return ($true(isinstance(attention, LatentAttention)) ? "latent" : "softmax");
});
let attention_groups;
attention_groups = $def("attention_groups", "shape", [], function (shape) {
let attention, count, counts, groups, key, norm;

counts = dict([]);
for ([attention, count] of shape.attentions.items()) {
key = attention;
if ($true(isinstance(attention, Attention))) {
norm = ($eq(attention.qk_norm, "l2") ? "none" : attention.qk_norm);
key = replace(attention, {__proto__: $k, window: null, chunked: false, rotated: false, qk_norm: norm, beside: null});
}
if (!$true(isinstance(key, Mixer))) {
$set(counts, key, $add(counts.get(key, 0n), count));
}
}
groups = [...counts.items(), ...shape.mixers.items()];
return dict((function* ($first) { for (const [key, count] of $first) yield [key, layers_named(shape, attention_name(key), count)]; })(groups));
});
let layers_named;
layers_named = $def("layers_named", "shape name count", [], function (shape, name, count) {

return Symbol(($eq(count, shape.num_layers) ? "n_layers" : ("" + $format(name, "") + "_layers")), count);
});
let ffn_layers;
ffn_layers = $def("ffn_layers", "shape", [], function (shape) {
let order;

if ($eq(len(getattr(shape, "ffns")), 1n)) {
return dict((function* ($first) { for (const [ffn, count] of $first) yield [ffn, Symbol("n_layers", count)]; })(shape.ffns.items()));
}
order = sorted((function* ($first) { for (const ffn of $first) if ($true(ffn.d_ff)) yield ffn; })(shape.ffns), {__proto__: $k, key: ((ffn) => $is(ffn.experts, null))});
return dict((function* ($first) { for (const ffn of $first) yield [ffn, Symbol(("" + $format(ffn_name(shape, ffn), "") + "_layers"), $item(shape.ffns, ffn))]; })(order));
});
let layer_matrices;
layer_matrices = $def("layer_matrices", "shape kind", [], function (shape, kind) {
let d, e, f, ffn, gates, keys, mixer, sizes, wide;

[d, e, f, ffn] = $tuple([shape.d_model, shape.head_width, kind.d_ff, kind.ffn]);
gates = ($true(shape.gated) ? 2n : 1n);
if ($true(shape.plain)) {
sizes = [$tuple([d, $mul($add(shape.num_heads, $mul(2n, shape.kv_heads)), e), 1n]), $tuple([$mul(shape.num_heads, e), d, 1n])];
} else {
if ($true(isinstance(getattr(kind, "attention"), LatentAttention))) {
sizes = _latent_matrices(shape, getattr(kind, "attention"));
} else {
if ($true(isinstance(getattr(kind, "attention"), Mixer))) {
sizes = [];
} else {
[wide, keys] = $tuple([($true(kind.attention.gated) ? 2n : 1n), ($true(kind.attention.reuses) ? 0n : 2n)]);
sizes = [$tuple([d, $mul($mul(wide, shape.num_heads), e), 1n]), $tuple([d, $mul(shape.kv_heads, e), keys]), $tuple([$mul(shape.num_heads, e), d, 1n])];
}
}
}
mixer = ($true(isinstance(getattr(kind, "attention"), Mixer)) ? kind.attention : kind.attention.beside);
if ($isnot(mixer, null)) {
sizes = $add(sizes, [...(function* ($first) { for (const [, one, other] of $first) yield $tuple([($is(one, null) ? d : one), ($is(other, null) ? d : other), 1n]); })(mixer.matrices)]);
}
if (!$true(f)) {
return sizes;
}
if (($is(ffn.experts, null) && !$true(shape.plain))) {
return [...sizes, $tuple([d, f, gates]), $tuple([f, d, 1n])];
}
sizes = $add(sizes, [$tuple([d, $mul(gates, f), ffn.held]), $tuple([f, d, ffn.held])]);
if ($isnot(ffn.experts, null)) {
sizes.append($tuple([d, ffn.experts, 1n]));
}
if ($isnot(ffn.shared_d_ff, null)) {
sizes = $add(sizes, [$tuple([d, ffn.shared_d_ff, gates]), $tuple([ffn.shared_d_ff, d, 1n])]);
}
return ($true(ffn.shared_gate) ? [...sizes, $tuple([d, 1n, 1n])] : sizes);
});
let _latent_matrices;
_latent_matrices = $def("_latent_matrices", "shape latent", [], function (shape, latent) {
let d, heads, index, sizes, width;
[d, heads, width] = $tuple([shape.d_model, shape.num_heads, $add(latent.nope_dim, latent.rope_dim)]);
index = latent.indexer;
sizes = [$tuple([d, $mul(heads, width), 1n])];
if ($isnot(latent.q_rank, null)) {
sizes = [$tuple([d, latent.q_rank, 1n]), $tuple([latent.q_rank, $mul(heads, width), 1n])];
}
if (($isnot(index, null) && $isnot(latent.q_rank, null))) {
sizes = $add(sizes, [$tuple([latent.q_rank, $mul(index.heads, index.width), 1n]), $tuple([d, index.width, 1n]), $tuple([d, index.heads, 1n])]);
}
return [...sizes, $tuple([d, $add(latent.kv_rank, latent.rope_dim), 1n]), $tuple([latent.kv_rank, $mul(heads, $add(latent.nope_dim, latent.value_dim)), 1n]), $tuple([$mul(heads, latent.value_dim), d, 1n])];
});
return {Stack, stack, _below, _names, ffn_name, attention_name, attention_groups, layers_named, ffn_layers, layer_matrices, _latent_matrices};
};
$modules["accounting.layer"] = () => {
const booleans = $load("accounting.checks").booleans;
const choose = $load("accounting.checks").choose;
const dataclass = $load("dataclasses").dataclass;
const positive = $load("accounting.checks").positive;
const replace = $load("dataclasses").replace;
let QK_NORMS;
QK_NORMS = $tuple(["none", "head", "width", "l2"]);
let ROUTERS;
ROUTERS = $tuple(["softmax", "sigmoid", "softmax_of_chosen", "sigmoid_of_input"]);
let Mixer;
Mixer = $class("Mixer", [], true, [["name"], ["matrices", $tuple([])], ["vectors", $tuple([])], ["norms", $tuple([])], ["state", 0n], ["newest", 0n], ["flops", 0n]], ($c) => {
$c.window = null;
$c.limit = null;
$c.beside = null;
$c.chunked = false;
$c.sinks = false;
$c.rotated = false;
$c.reuses = false;
$c.qk_norm = "none";
});
let Attention;
Attention = $class("Attention", [], true, [["window", null], ["chunked", false], ["rotated", null], ["qk_norm", null], ["sinks", false], ["gated", false], ["reuses", false], ["beside", null]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
if ($isnot(self.window, null)) {
positive("sliding_window", getattr(self, "window"));
} else {
if ($true(self.chunked)) {
throw ValueError("chunked attention needs a window, the width of a chunk: give one");
}
}
booleans(self, $tuple(["chunked", "sinks", "gated", "reuses"]));
if ($isnot(self.rotated, null)) {
booleans(self, $tuple(["rotated"]));
}
if ($isnot(self.qk_norm, null)) {
choose("qk_norm", getattr(self, "qk_norm"), QK_NORMS);
}
});
$c.limit = property($def("limit", "self", [], function (self) {

return self.window;
}));
});
let Indexer;
Indexer = $class("Indexer", [], true, [["heads"], ["width"], ["top"]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let name;
for (name of $tuple(["heads", "width", "top"])) {
positive(name, getattr(self, name));
}
});
});
let LatentAttention;
LatentAttention = $class("LatentAttention", [], true, [["q_rank"], ["kv_rank"], ["nope_dim"], ["rope_dim"], ["value_dim"], ["indexer", null]], ($c) => {
$c.window = null;
$c.beside = null;
$c.chunked = false;
$c.sinks = false;
$c.reuses = false;
$c.rotated = true;
$c.qk_norm = "none";
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let name;
for (name of $tuple(["kv_rank", "nope_dim", "rope_dim", "value_dim"])) {
positive(name, getattr(self, name));
}
if ($isnot(self.q_rank, null)) {
positive("q_rank", getattr(self, "q_rank"));
} else {
if ($isnot(self.indexer, null)) {
throw ValueError("an indexer reads the latent of the queries, and q_rank is None: give one");
}
}
});
$c.limit = property($def("limit", "self", [], function (self) {

return ($is(self.indexer, null) ? null : self.indexer.top);
}));
});
let FeedForward;
FeedForward = $class("FeedForward", [], true, [["d_ff", null], ["_"], ["experts", null], ["experts_per_token", null], ["experts_held", null], ["shared_d_ff", null], ["shared_gate", false], ["router", "softmax"], ["router_bias", false]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let each, name;
for (name of $tuple(["d_ff", "experts", "experts_per_token", "experts_held", "shared_d_ff"])) {
if (($eq(name, "d_ff") && $eq(self.d_ff, 0n) && $is(self.experts, null))) {
continue;
}
if ($isnot(getattr(self, name), null)) {
positive(name, getattr(self, name));
}
}
booleans(self, $tuple(["shared_gate", "router_bias"]));
choose("router", getattr(self, "router"), ROUTERS);
if ($ne($is(self.experts, null), $is(self.experts_per_token, null))) {
each = self.experts_per_token;
throw ValueError(("" + "experts " + $format(self.experts, "") + " and experts_per_token " + $format(each, "") + " go together: give both or neither"));
}
if (($is(self.experts, null) && ($true(self.experts_held) || $true(self.shared_d_ff) || $true(self.router_bias)))) {
throw ValueError("experts_held, shared_d_ff and router_bias need experts: give experts");
}
if (($true(self.shared_gate) && $is(self.shared_d_ff, null))) {
throw ValueError("shared_gate needs a shared feed-forward layer: give shared_d_ff");
}
for (name of $tuple(["experts_per_token", "experts_held"])) {
if (($isnot(self.experts, null) && $gt($or(getattr(self, name), () => 1n), self.experts))) {
throw ValueError(("" + $format(name, "") + " " + $format(getattr(self, name), "") + " is more than experts " + $format(self.experts, "")));
}
}
});
$c.active = property($def("active", "self", [], function (self) {

return $or(self.experts_per_token, () => 1n);
}));
$c.held = property($def("held", "self", [], function (self) {

return $or(self.experts_held, () => $or(self.experts, () => 1n));
}));
});
let Layer;
Layer = $class("Layer", [], true, [["attention", null], ["ffn", null]], ($c) => {

});
let Kind;
Kind = $class("Kind", [], true, [["attention"], ["ffn"]], ($c) => {
$c.d_ff = property($def("d_ff", "self", [], function (self) {
return $or(self.ffn.d_ff, () => 0n);
}));
});
let pattern;
pattern = $def("pattern", "layers", [], function (layers) {
let period;

for (period of range(1n, len(layers))) {
if ($true(all((function* ($first) { for (const at of $first) yield $eq($item(layers, at), $item(layers, $sub(at, period))); })(range(period, len(layers)))))) {
return tuple($slice(layers, null, period));
}
}
return tuple(layers);
});
let without_window;
without_window = $def("without_window", "kind", [], function (kind) {
let attention;
attention = kind.attention;
if (($true(isinstance(attention, Attention)) && $isnot(attention.window, null))) {
return Kind(replace(attention, {__proto__: $k, window: null, chunked: false}), getattr(kind, "ffn"));
}
return kind;
});
return {QK_NORMS, ROUTERS, Mixer, Attention, Indexer, LatentAttention, FeedForward, Layer, Kind, pattern, without_window};
};
$modules["accounting.checks"] = () => {
let booleans;
booleans = $def("booleans", "record names", [], function (record, names) {
let name;
for (name of names) {
if (!$true(isinstance(getattr(record, name), bool))) {
throw ValueError(("" + $format(name, "") + " must be True or False, and " + $format(repr(getattr(record, name)), "") + " is neither"));
}
}
});
let whole;
whole = $def("whole", "name value least=", [0n], function (name, value, least) {

value = integer(value);
if (($true(isinstance(value, bool)) || !$true(isinstance(value, int)) || $lt(value, least))) {
throw ValueError(("" + $format(name, "") + " must be a whole number of at least " + $format(least, "") + ", and " + $format(repr(value), "") + " is not"));
}
return value;
});
let integer;
integer = $def("integer", "value", [], function (value) {
let index;

index = ($true(isinstance(value, int)) ? null : getattr(value, "__index__", null));
return ($is(index, null) ? value : index());
});
let instance;
instance = $def("instance", "name value kind among", [], function (name, value, kind, among) {

if (!$true(isinstance(value, kind))) {
throw TypeError(("" + "expected " + $format(name, "") + " as a " + $format(kind.__name__, "") + ", got " + $format(repr(value), ("" + ".80")) + ": " + $format(among, "") + "['…'] has those with a name"));
}
});
let positive;
positive = $def("positive", "name value", [], function (name, value) {

return whole(name, value, 1n);
});
let choose;
choose = $def("choose", "name value among", [], function (name, value, among) {

if ($notin(value, tuple(among))) {
throw ValueError(("" + $format(name, "") + " " + $format(repr(value), "") + " is not known: use one of " + $format(", ".join(among), "")));
}
return str(value);
});
return {booleans, whole, integer, instance, positive, choose};
};
$modules["accounting.shape"] = () => {
const Attention = $load("accounting.layer").Attention;
const FeedForward = $load("accounting.layer").FeedForward;
const Kind = $load("accounting.layer").Kind;
const LatentAttention = $load("accounting.layer").LatentAttention;
const Layer = $load("accounting.layer").Layer;
const Mixer = $load("accounting.layer").Mixer;
const QK_NORMS = $load("accounting.layer").QK_NORMS;
const booleans = $load("accounting.checks").booleans;
const cached_property = $load("functools").cached_property;
const choose = $load("accounting.checks").choose;
const dataclass = $load("dataclasses").dataclass;
const positive = $load("accounting.checks").positive;
const replace = $load("dataclasses").replace;
const whole = $load("accounting.checks").whole;
const without_window = $load("accounting.layer").without_window;
let FFNS;
FFNS = $tuple(["swiglu", "clamped_swiglu", "geglu", "gelu", "gelu_new", "silu", "relu", "relu2"]);
let GATED;
GATED = $tuple(["swiglu", "clamped_swiglu", "geglu"]);
let NORMS;
NORMS = $tuple(["rmsnorm", "layernorm", "none"]);
let POSITIONS;
POSITIONS = $tuple(["rope", "learned", "alibi", "none"]);
let ATTENTION_TARGETS;
ATTENTION_TARGETS = $tuple(["query", "key", "value", "output"]);
let ADAPTED;
ADAPTED = $tuple([...ATTENTION_TARGETS, "gate", "up", "down", "qkv", "gate_up"]);
let NotCounted;
NotCounted = $class("NotCounted", [ValueError], false, [], ($c) => {

});
let TransformerShape;
TransformerShape = $class("TransformerShape", [], true, [["vocab_size"], ["context_length"], ["num_layers"], ["d_model"], ["num_heads"], ["d_ff"], ["_"], ["num_kv_heads", null], ["head_dim", null], ["ffn", "swiglu"], ["norm", "rmsnorm"], ["position", "rope"], ["tied_embeddings", false], ["bias", false], ["sliding_window", null], ["qkv_bias", null], ["output_bias", null], ["ffn_bias", null], ["norm_bias", null], ["norm_weights", true], ["qk_norm", false], ["post_norm", false], ["block_norms", null], ["parallel", false], ["repeated_keys", false], ["embedding_norm", false], ["head_bias", false], ["experts", null], ["experts_per_token", null], ["vocab_multiple", 1n], ["extra_positions", 0n], ["value_embeddings", 0n], ["lora_rank", null], ["lora_targets", null], ["leading", $tuple([])], ["layers", $tuple([Layer()])]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let name;
for (name of $tuple(["vocab_size", "context_length", "num_layers", "d_model", "num_heads", "d_ff", "vocab_multiple"])) {
positive(name, getattr(self, name));
}
for (name of $tuple(["num_kv_heads", "head_dim", "sliding_window", "experts", "experts_per_token", "lora_rank"])) {
if ($isnot(getattr(self, name), null)) {
positive(name, getattr(self, name));
}
}
booleans(self, $tuple(["tied_embeddings", "bias", "norm_weights", "head_bias", "post_norm", "embedding_norm"]));
booleans(self, $tuple(["parallel", "repeated_keys"]));
for (name of $tuple(["qkv_bias", "output_bias", "ffn_bias", "norm_bias"])) {
if (($isnot(getattr(self, name), null) && !$true(isinstance(getattr(self, name), bool)))) {
throw ValueError(("" + $format(name, "") + " must be True, False or None for that of bias, and " + $format(repr(getattr(self, name)), "") + " is neither"));
}
}
choose("ffn", getattr(self, "ffn"), FFNS);
choose("norm", getattr(self, "norm"), NORMS);
choose("position", getattr(self, "position"), POSITIONS);
if (!$true(isinstance(getattr(self, "qk_norm"), bool))) {
choose("qk_norm", getattr(self, "qk_norm"), QK_NORMS);
}
for (name of $tuple(["block_norms", "extra_positions"])) {
if ($isnot(getattr(self, name), null)) {
whole(name, getattr(self, name));
}
}
if (($true(self.extra_positions) && $ne(self.position, "learned"))) {
throw ValueError(("" + "extra_positions " + $format(self.extra_positions, "") + " are rows of learned positions: leave them out"));
}
self._check_layers();
self._check_heads();
if (!($le(0n, whole("value_embeddings", getattr(self, "value_embeddings"))) && $le(whole("value_embeddings", getattr(self, "value_embeddings")), self.num_layers))) {
throw ValueError(("" + "value_embeddings " + $format(self.value_embeddings, "") + " is more than num_layers " + $format(self.num_layers, "")));
}
if (($true(self.value_embeddings) && !$true(all((function* ($first) { for (const kind of $first) yield isinstance(getattr(kind, "attention"), Attention); })(self.counts))))) {
throw ValueError("value_embeddings need the values of softmax attention: leave them out");
}
self._check_adapters();
});
$c._check_layers = $def("_check_layers", "self", [], function (self) {
let listed, name, value;
for (name of $tuple(["leading", "layers"])) {
value = getattr(self, name);
if ((!$true(isinstance(value, tuple)) || !$true(all((function* ($first) { for (const layer of $first) yield isinstance(layer, Layer); })(value))))) {
throw ValueError(("" + "expected " + $format(name, "") + " as a tuple of Layer, got " + $format(repr(value), ("" + ".80"))));
}
}
if (!$true(self.layers)) {
throw ValueError("layers is empty: give at least one Layer");
}
if ($gt(len(getattr(self, "leading")), self.num_layers)) {
throw ValueError(("" + "leading has " + $format(len(getattr(self, "leading")), "") + " layers, and num_layers is " + $format(self.num_layers, "") + ": give fewer"));
}
listed = [...(function* ($first) { for (const layer of $first) if (($is(layer.attention, null) || $is(layer.ffn, null))) yield layer; })($tuple([...self.leading, ...self.layers]))];
if ((!$true(any((function* ($first) { for (const layer of $first) yield $is(layer.ffn, null); })(listed))) && ($true(self.experts) || $true(self.experts_per_token)))) {
throw ValueError("experts would change nothing, as every layer has its own ffn: leave it out");
}
if ((!$true(any((function* ($first) { for (const layer of $first) yield $is(layer.attention, null); })(listed))) && $true(self.sliding_window))) {
throw ValueError("sliding_window would change nothing, as every layer has its own attention: leave it out");
}
});
$c._check_heads = $def("_check_heads", "self", [], function (self) {
let kinds, name, value;
kinds = [...(function* ($first) { for (const kind of $first) if ($true(isinstance(getattr(kind, "attention"), Attention))) yield kind.attention; })(self.counts)];
if (!$true(kinds)) {
for ([name, value] of $tuple([$tuple(["num_kv_heads", self.num_kv_heads]), $tuple(["head_dim", self.head_dim])])) {
if ($isnot(value, null)) {
throw ValueError(("" + $format(name, "") + " " + $format(value, "") + " would change nothing without softmax attention: leave it out"));
}
}
return null;
}
if (($is(self.head_dim, null) && $true($mod(self.d_model, self.num_heads)))) {
throw ValueError(("" + "d_model " + $format(self.d_model, "") + " is not a multiple of num_heads " + $format(self.num_heads, "") + ": give head_dim"));
}
if ($true($mod(self.num_heads, self.kv_heads))) {
throw ValueError(("" + "num_kv_heads " + $format(self.kv_heads, "") + " does not divide num_heads " + $format(self.num_heads, "") + ": give a divisor"));
}
if (($true(any((function* ($first) { for (const one of $first) yield one.rotated; })(kinds))) && $ne(self.position, "rope"))) {
throw ValueError(("" + "rotated layers need position 'rope', got " + $format(repr(self.position), "")));
}
if (($true(any((function* ($first) { for (const one of $first) yield one.rotated; })(kinds))) && $true($mod(self.head_width, 2n)))) {
throw ValueError(("" + "head_dim " + $format(self.head_width, "") + " is odd, and rope turns pairs: make it even"));
}
if ($true(any((function* ($first) { for (const one of $first) yield $and($eq(one.qk_norm, "l2"), () => !$true(one.rotated)); })(kinds)))) {
throw ValueError("qk_norm 'l2' is of rotated queries and keys: rotate them, or use another");
}
});
$c._check_adapters = $def("_check_adapters", "self", [], function (self) {
let name, parts, targets;
if ($is(self.lora_rank, null)) {
if ($isnot(self.lora_targets, null)) {
throw ValueError(("" + "lora_targets " + $format(self.lora_targets, "") + " have no meaning without a lora_rank: give one"));
}
return null;
}
if (($gt(len(getattr(self, "matrix_kinds")), 1n) || !$true(self.plain) || $true(self.value_embeddings))) {
throw ValueError(("" + "lora_rank " + $format(self.lora_rank, "") + ": adapters are not counted for latent attention, linear attention, shared experts, dense layers beside experts, attention sinks or value embeddings"));
}
targets = self.adapted;
if ((!$true(isinstance(targets, tuple)) || !$true(targets) || $lt(len(set(targets)), len(targets)))) {
throw ValueError(("" + "expected lora_targets as a tuple of at least one matrix, each once, got " + $format(repr(targets), "")));
}
for (name of targets) {
choose("lora_targets", name, ADAPTED);
}
for ([name, parts] of $tuple([$tuple(["qkv", $tuple(["query", "key", "value"])]), $tuple(["gate_up", $tuple(["gate", "up"])])])) {
if (($in(name, targets) && $true($meet(set(parts), set(targets))))) {
throw ValueError(("" + "lora_targets " + $format(targets, "") + " name " + $format(name, "") + " and a part of it: name one of them"));
}
}
if ((!$true(self.gated) && $true($meet(set(["gate", "gate_up"]), set(targets))))) {
throw ValueError(("" + "lora_targets " + $format(targets, "") + " name a gate, and ffn " + $format(repr(self.ffn), "") + " has none: leave it out"));
}
});
$c.kind = $def("kind", "self layer", [], function (self, layer) {
let attention, ffn, norm;

attention = ($is(layer.attention, null) ? Attention(getattr(self, "sliding_window")) : layer.attention);
if ($true(isinstance(attention, Attention))) {
norm = ($is(self.qk_norm, true) ? "head" : $or(self.qk_norm, () => "none"));
attention = replace(attention, {__proto__: $k, rotated: ($is(attention.rotated, null) ? $eq(self.position, "rope") : attention.rotated), qk_norm: ($is(attention.qk_norm, null) ? norm : attention.qk_norm)});
}
ffn = $or(layer.ffn, () => FeedForward({__proto__: $k, experts: self.experts, experts_per_token: self.experts_per_token}));
return Kind(attention, replace(ffn, {__proto__: $k, d_ff: ($is(ffn.d_ff, null) ? self.d_ff : ffn.d_ff)}));
});
$c._resolved = cached_property($def("_resolved", "self", [], function (self) {
let kinds;
kinds = dict((function* ($first) { for (const layer of $first) yield [layer, self.kind(layer)]; })(set([...self.leading, ...self.layers])));
return $tuple([[...(function* ($first) { for (const layer of $first) yield $item(kinds, layer); })(self.leading)], [...(function* ($first) { for (const layer of $first) yield $item(kinds, layer); })(self.layers)]]);
}));
$c.kind_at = $def("kind_at", "self depth", [], function (self, depth) {
let leading, pattern;

[leading, pattern] = self._resolved;
return ($lt(depth, len(leading)) ? $item(leading, depth) : $item(pattern, $mod($sub(depth, len(leading)), len(pattern))));
});
$c.counts = cached_property($def("counts", "self", [], function (self) {

return self.counts_below(getattr(self, "num_layers"));
}));
$c.counts_below = $def("counts_below", "self depth", [], function (self, depth) {
let counts, leading, parts, pattern, periods, rest;

[leading, pattern] = self._resolved;
[periods, rest] = divmod(max(0n, $sub(depth, len(leading))), len(pattern));
parts = $tuple([$tuple([$slice(leading, null, depth), 1n]), $tuple([pattern, periods]), $tuple([$slice(pattern, null, rest), 1n])]);
counts = _sums((function* ($first) { for (const [kinds, times] of $first) for (const kind of kinds) yield $tuple([kind, times]); })(parts));
return dict((function* ($first) { for (const [kind, count] of $first) if ($true(count)) yield [kind, count]; })(counts.items()));
});
$c.between = $def("between", "self first after", [], function (self, first, after) {
let at, layers, leading, turn;

at = len(getattr(self, "leading"));
[leading, turn] = $tuple([$slice(self.leading, first, after), $mod(max(0n, $sub(first, at)), len(getattr(self, "layers")))]);
layers = $add($slice(self.layers, turn, null), $slice(self.layers, null, turn));
if ($le(after, at)) {
[leading, layers] = $tuple([$slice(leading, null, $neg(1n)), $slice(leading, $neg(1n), null)]);
}
return replace(self, {__proto__: $k, num_layers: $sub(after, first), leading: leading, layers: layers});
});
$c.matrix_kinds = cached_property($def("matrix_kinds", "self", [], function (self) {

return _sums((function* ($first) { for (const [kind, count] of $first) yield $tuple([without_window(kind), count]); })(self.counts.items()));
}));
$c.attentions = cached_property($def("attentions", "self", [], function (self) {

return _sums((function* ($first) { for (const [kind, count] of $first) yield $tuple([kind.attention, count]); })(self.matrix_kinds.items()));
}));
$c.mixers = cached_property($def("mixers", "self", [], function (self) {
let pairs;

pairs = (function* ($first) { for (const [one, count] of $first) yield $tuple([($true(isinstance(one, Mixer)) ? one : one.beside), count]); })(self.attentions.items());
return _sums((function* ($first) { for (const [mixer, count] of $first) if (($isnot(mixer, null) && $ne(mixer.name, "nothing"))) yield $tuple([mixer, count]); })(pairs));
}));
$c.ffns = cached_property($def("ffns", "self", [], function (self) {

return _sums((function* ($first) { for (const [kind, count] of $first) yield $tuple([kind.ffn, count]); })(self.matrix_kinds.items()));
}));
$c.plain = cached_property($def("plain", "self", [], function (self) {

return $and($eq(len(getattr(self, "matrix_kinds")), 1n), () => $and($in(self.ffn, $tuple(["swiglu", "geglu", "gelu", "silu", "relu2"])), () => $and($is(self.block_norms, null), () => $and(!($true(self.parallel) || $true(self.repeated_keys)), () => $and(self.norm_weights, () => $and(!($true(self.embedding_norm) || $true(self.extra_positions) || $true(self.head_bias)), () => $and($ne(self.position, "alibi"), () => $and(all((function* ($first) { for (const bias of $first) yield $in(bias, $tuple([null, self.bias])); })($tuple([self.output_bias, self.ffn_bias, self.norm_bias]))), () => $and(all((function* ($first) { for (const one of $first) yield $and(isinstance(one, Attention), () => $and(!($true(one.sinks) || $true(one.gated) || $true(one.chunked) || $true(one.reuses) || $true(one.beside)), () => $and($in(one.qk_norm, $tuple(["none", "head"])), () => $eq(one.rotated, $eq(self.position, "rope"))))); })(self.attentions)), () => all((function* ($first) { for (const one of $first) yield $and($is(one.shared_d_ff, null), () => $and($eq(one.router, "softmax"), () => !$true(one.router_bias))); })(self.ffns)))))))))));
}));
$c.adapted = property($def("adapted", "self", [], function (self) {

if ($is(self.lora_rank, null)) {
return $tuple([]);
}
if ($isnot(self.lora_targets, null)) {
return self.lora_targets;
}
return $tuple([...ATTENTION_TARGETS, ...($true(self.gated) ? $tuple(["gate", "up", "down"]) : $tuple(["up", "down"]))]);
}));
$c.kv_heads = property($def("kv_heads", "self", [], function (self) {

return ($is(self.num_kv_heads, null) ? self.num_heads : self.num_kv_heads);
}));
$c.head_width = property($def("head_width", "self", [], function (self) {
let kind;

for (kind of self.counts) {
if ($true(isinstance(getattr(kind, "attention"), LatentAttention))) {
return $add(kind.attention.nope_dim, kind.attention.rope_dim);
}
}
return ($is(self.head_dim, null) ? $floordiv(self.d_model, self.num_heads) : self.head_dim);
}));
$c.latent = property($def("latent", "self", [], function (self) {

return next((function* ($first) { for (const one of $first) if ($true(isinstance(one, LatentAttention))) yield one; })(self.attentions), null);
}));
$c.vocab_rows = property($def("vocab_rows", "self", [], function (self) {

return $mul($neg($floordiv($neg(self.vocab_size), self.vocab_multiple)), self.vocab_multiple);
}));
$c.gated = property($def("gated", "self", [], function (self) {
return $in(self.ffn, GATED);
}));
$c.matrices_of_ffn = property($def("matrices_of_ffn", "self", [], function (self) {

return ($true(self.gated) ? 3n : 2n);
}));
$c.most_experts = property($def("most_experts", "self", [], function (self) {

return max((function* ($first) { for (const one of $first) yield $or(one.experts, () => 1n); })(self.ffns));
}));
$c.windowed_layers = property($def("windowed_layers", "self", [], function (self) {

return sum((function* ($first) { for (const [kind, count] of $first) if ($isnot(kind.attention.window, null)) yield count; })(self.counts.items()));
}));
$c.biased_qkv = property($def("biased_qkv", "self", [], function (self) {
return ($is(self.qkv_bias, null) ? self.bias : self.qkv_bias);
}));
$c.biased_output = property($def("biased_output", "self", [], function (self) {
return ($is(self.output_bias, null) ? self.bias : self.output_bias);
}));
$c.biased_ffn = property($def("biased_ffn", "self", [], function (self) {
return ($is(self.ffn_bias, null) ? self.bias : self.ffn_bias);
}));
$c.biased_norm = property($def("biased_norm", "self", [], function (self) {

return $and($eq(self.norm, "layernorm"), () => ($is(self.norm_bias, null) ? self.bias : self.norm_bias));
}));
$c.norms_of_block = property($def("norms_of_block", "self", [], function (self) {
return ($is(self.block_norms, null) ? ($true(self.post_norm) ? 4n : 2n) : self.block_norms);
}));
$c.weighted_norms = property($def("weighted_norms", "self", [], function (self) {

return ($true(self.norm_weights) ? self.norms : 0n);
}));
$c.norms = property($def("norms", "self", [], function (self) {

return ($eq(self.norm, "none") ? 0n : $add($add($mul(self.num_layers, self.norms_of_block), 1n), self.embedding_norm));
}));
$c.sequence = $def("sequence", "self seq_len", [], function (self, seq_len) {
let length, most;

length = ($is(seq_len, null) ? self.context_length : positive("seq_len", seq_len));
if (($eq(self.position, "learned") && $gt(length, self.context_length))) {
most = self.context_length;
throw ValueError(("" + "seq_len " + $format(length, "") + " is beyond the " + $format(most, "") + " learned positions: lengthen context_length"));
}
return length;
});
});
let _sums;
_sums = $def("_sums", "pairs", [], function (pairs) {
let count, key, sums;
sums = dict([]);
for ([key, count] of pairs) {
$set(sums, key, $add(sums.get(key, 0n), count));
}
return sums;
});
let no_value_embeddings;
no_value_embeddings = $def("no_value_embeddings", "shape quantity", [], function (shape, quantity) {

if ($true(shape.value_embeddings)) {
throw NotCounted(("" + $format(quantity, "") + " is not counted of shapes with value embeddings"));
}
});
return {FFNS, GATED, NORMS, POSITIONS, ATTENTION_TARGETS, ADAPTED, NotCounted, TransformerShape, _sums, no_value_embeddings};
};
$modules["accounting.counting.adapters"] = () => {
const Dimensions = $load("accounting.counting.dimensions").Dimensions;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const Symbol = $load("accounting.formula").Symbol;
const added = $load("accounting.formula").added;
let OF_FFN_MATRICES;
OF_FFN_MATRICES = $tuple(["gate", "up", "gate_up", "down"]);
let no_muon_of_adapters;
no_muon_of_adapters = $def("no_muon_of_adapters", "shape optimizer", [], function (shape, optimizer) {

if (($isnot(shape.lora_rank, null) && $eq(optimizer, "muon"))) {
throw ValueError("optimizer 'muon' is of whole matrices, and here adapters are trained: use adamw or sgd");
}
});
let adapted;
adapted = $def("adapted", "shape", [], function (shape) {
let d_ff, ffn, keys, n, queries, sizes;

if ($is(shape.lora_rank, null)) {
return dict([]);
}
[n, [ffn]] = $tuple([Dimensions(shape), shape.ffns]);
d_ff = FfnDimensions(shape, ffn).d_ff;
[queries, keys] = $tuple([$mul(n.n_heads, n.head_dim), $mul(n.n_kv_heads, n.head_dim)]);
sizes = dict([["query", $tuple([n.d_model, queries])], ["key", $tuple([n.d_model, keys])], ["value", $tuple([n.d_model, keys])], ["qkv", $tuple([n.d_model, $mul($add(n.n_heads, $mul(2n, n.n_kv_heads)), n.head_dim)])], ["output", $tuple([queries, n.d_model])], ["gate", $tuple([n.d_model, d_ff])], ["up", $tuple([n.d_model, d_ff])], ["gate_up", $tuple([n.d_model, $mul(2n, d_ff)])], ["down", $tuple([d_ff, n.d_model])]]);
return dict((function* ($first) { for (const name of $first) yield [name, $item(sizes, name)]; })(shape.adapted));
});
let rank_of;
rank_of = $def("rank_of", "shape", [], function (shape) {

return Symbol("lora_rank", $or(shape.lora_rank, () => 0n));
});
let adapter_elements;
adapter_elements = $def("adapter_elements", "shape experts * of_ffn=", [null], function (shape, experts, of_ffn) {
let into, name, one, out, rank, terms;

[rank, terms] = $tuple([rank_of(shape), []]);
for ([name, [into, out]] of adapted(shape).items()) {
if (($is(of_ffn, null) || $eq(of_ffn, $in(name, OF_FFN_MATRICES)))) {
one = $mul(rank, $add(into, out));
terms.append(($in(name, OF_FFN_MATRICES) ? $mul(experts, one) : one));
}
}
return added(terms);
});
let adapter_tensors;
adapter_tensors = $def("adapter_tensors", "shape", [], function (shape) {
let _, copies, ffn, into, name, out, rank, tensors;

[rank, [ffn, ]] = $tuple([$or(shape.lora_rank, () => 0n), shape.ffns]);
tensors = [];
for ([name, [into, out]] of adapted(shape).items()) {
copies = $mul(shape.num_layers, ($in(name, OF_FFN_MATRICES) ? ffn.held : 1n));
tensors = $add(tensors, [$tuple([copies, $mul(rank, int(into))]), $tuple([copies, $mul(rank, int(out))])]);
}
return tensors;
});
return {OF_FFN_MATRICES, no_muon_of_adapters, adapted, rank_of, adapter_elements, adapter_tensors};
};
$modules["accounting.counting.dimensions"] = () => {
const LatentAttention = $load("accounting.layer").LatentAttention;
const Mixer = $load("accounting.layer").Mixer;
const Symbol = $load("accounting.formula").Symbol;
const constant = $load("accounting.formula").constant;
let Dimensions;
Dimensions = $class("Dimensions", [], false, [], ($c) => {
$c.__init__ = $def("__init__", "self shape", [], function (self, shape) {
self.vocab = Symbol("vocab", getattr(shape, "vocab_rows"));
self.max_seq = Symbol("max_seq", $add(shape.context_length, shape.extra_positions));
self.n_layers = Symbol("n_layers", getattr(shape, "num_layers"));
self.d_model = Symbol("d_model", getattr(shape, "d_model"));
self.n_heads = Symbol("n_heads", getattr(shape, "num_heads"));
self.n_kv_heads = Symbol("n_kv_heads", getattr(shape, "kv_heads"));
self.head_dim = Symbol("head_dim", getattr(shape, "head_width"));
});
});
let LatentDimensions;
LatentDimensions = $class("LatentDimensions", [], false, [], ($c) => {
$c.__init__ = $def("__init__", "self latent", [], function (self, latent) {
self.q_rank = Symbol("q_rank", $or(latent.q_rank, () => 0n));
self.kv_rank = Symbol("kv_rank", getattr(latent, "kv_rank"));
self.nope_dim = Symbol("nope_dim", getattr(latent, "nope_dim"));
self.rope_dim = Symbol("rope_dim", getattr(latent, "rope_dim"));
self.value_dim = Symbol("value_dim", getattr(latent, "value_dim"));
self.index_heads = Symbol("index_heads", ($true(latent.indexer) ? latent.indexer.heads : 0n));
self.index_dim = Symbol("index_dim", ($true(latent.indexer) ? latent.indexer.width : 0n));
});
});
let FfnDimensions;
FfnDimensions = $class("FfnDimensions", [], false, [], ($c) => {
$c.__init__ = $def("__init__", "self shape ffn", [], function (self, shape, ffn) {
let beside_experts;
beside_experts = $and($is(ffn.experts, null), () => $gt(len(getattr(shape, "ffns")), 1n));
self.d_ff = Symbol(($true(beside_experts) ? "dense_d_ff" : "d_ff"), $or(ffn.d_ff, () => shape.d_ff));
self.n_experts = Symbol("n_experts", $or(ffn.experts, () => 1n));
self.held_experts = Symbol(($is(ffn.experts_held, null) ? "n_experts" : "held_experts"), getattr(ffn, "held"));
self.active_experts = Symbol("active_experts", getattr(ffn, "active"));
self.shared_d_ff = Symbol("shared_d_ff", $or(ffn.shared_d_ff, () => 0n));
});
});
let attention_matrices;
attention_matrices = $def("attention_matrices", "shape attention", [], function (shape, attention) {
let d, gate, keys, m, n, own, queries, sides, sizes;

n = Dimensions(shape);
if ($true(isinstance(attention, Mixer))) {
d = n.d_model;
sides = dict((function* ($first) { for (const [name, one, other] of $first) yield [name, $tuple([($is(one, null) ? d : constant(one)), other])]; })(attention.matrices));
return dict((function* ($first) { for (const [name, [rows, columns]] of $first) yield [name, $mul(rows, ($is(columns, null) ? d : columns))]; })(sides.items()));
}
if ($true(isinstance(attention, LatentAttention))) {
m = LatentDimensions(attention);
queries = $mul(n.n_heads, $add(m.nope_dim, m.rope_dim));
sizes = dict([["query", $mul(n.d_model, queries)]]);
if ($isnot(attention.q_rank, null)) {
sizes = dict([["query down", $mul(n.d_model, m.q_rank)], ["query up", $mul(m.q_rank, queries)]]);
}
if ($isnot(attention.indexer, null)) {
$set(sizes, "index query", $mul(m.q_rank, $mul(m.index_heads, m.index_dim)));
sizes = $union(sizes, dict([["index key", $mul(n.d_model, m.index_dim)], ["index weights", $mul(n.d_model, m.index_heads)]]));
}
return $union(sizes, dict([["key and value down", $mul(n.d_model, $add(m.kv_rank, m.rope_dim))], ["key and value up", $mul(m.kv_rank, $mul(n.n_heads, $add(m.nope_dim, m.value_dim)))], ["output", $mul($mul(n.n_heads, m.value_dim), n.d_model)]]));
}
[queries, keys] = $tuple([$mul($mul(n.d_model, n.n_heads), n.head_dim), $mul($mul(n.d_model, n.n_kv_heads), n.head_dim)]);
gate = ($true(attention.gated) ? dict([["attention gate", queries]]) : dict([]));
own = ($true(attention.reuses) ? dict([]) : dict([["key", keys], ["value", keys]]));
return dict([["query", queries], ...gate.items(), ...own.items(), ["output", queries]]);
});
let small_tensors;
small_tensors = $def("small_tensors", "shape attention", [], function (shape, attention) {
let biases, heads, keys, m, n, norms, ranks;

n = Dimensions(shape);
if ($true(isinstance(attention, Mixer))) {
return dict([["others", list(map(constant, getattr(attention, "vectors")))], ["norms", list(map(constant, getattr(attention, "norms")))]]);
}
biases = ($true(shape.biased_output) ? [n.d_model] : []);
if ($true(isinstance(attention, LatentAttention))) {
m = LatentDimensions(attention);
ranks = ($isnot(attention.q_rank, null) ? [m.q_rank] : []);
if ($true(shape.biased_qkv)) {
biases = $add(biases, [...ranks, $add(m.kv_rank, m.rope_dim)]);
}
if ($isnot(attention.indexer, null)) {
ranks = [...ranks, m.index_dim, m.index_dim];
}
return dict([["others", biases], ["norms", [...ranks, m.kv_rank]]]);
}
[heads, keys] = $tuple([$mul(n.n_heads, n.head_dim), $mul(n.n_kv_heads, n.head_dim)]);
if (($true(shape.biased_qkv) && $true(shape.plain))) {
biases.insert(0n, $mul(n.head_dim, $add(n.n_heads, $mul(2n, n.n_kv_heads))));
} else {
if ($true(shape.biased_qkv)) {
biases = [($true(attention.gated) ? $mul(2n, heads) : heads), keys, keys, ...biases];
}
}
if ($true(attention.sinks)) {
biases.insert(0n, getattr(n, "n_heads"));
}
norms = dict([["head", [n.head_dim, n.head_dim]], ["width", [heads, keys]]]).get($or(attention.qk_norm, () => "none"), []);
if ($true(attention.reuses)) {
[norms, biases] = $tuple([$slice(norms, null, 1n), [...(function* ($first) { for (const size of $first) if ($isnot(size, keys)) yield size; })(biases)]]);
}
return dict([["others", biases], ["norms", norms]]);
});
return {Dimensions, LatentDimensions, FfnDimensions, attention_matrices, small_tensors};
};
$modules["accounting.cluster.zero"] = () => {
const Enum = $load("enum").Enum;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const dataclass = $load("dataclasses").dataclass;
let ZERO_STAGES;
ZERO_STAGES = $tuple(["0", "1", "2", "3"]);
let Part;
Part = $class("Part", [Enum], false, [], ($c) => {
$c.PARAMETERS = "parameters";
$c.GATHERED = "gathered parameters";
$c.GRADIENTS = "gradients";
$c.REDUCED = "gradients being reduced";
$c.OPTIMIZER_STATE = "optimizer state";
});
let OF_A_PASS;
OF_A_PASS = $tuple([Part.GATHERED, Part.REDUCED]);
let Held;
Held = $class("Held", [], true, [["params"], ["block"], ["devices"], ["trained"], ["block_trained"]], ($c) => {

});
let shard_of;
shard_of = $def("shard_of", "whole dp data_rank=", [0n], function (whole, dp, data_rank) {
let each, left;

each = $floordiv($add(whole, $sub(dp, 1n)), dp);
left = $sub(int(whole), $mul(data_rank, int(each)));
return ($ge(left, int(each)) ? each : Symbol("last_shard", max(0n, left)));
});
let sharded_bytes;
sharded_bytes = $def("sharded_bytes", "group weight gradient zero layers data_rank=", [0n], function (group, weight, gradient, zero, layers, data_rank) {
let params, several, trained;

several = $gt(int(getattr(group, "devices")), 1n);
[params, trained] = (function* ($first) { for (const whole of $first) yield shard_of(whole, getattr(group, "devices"), data_rank); })($tuple([group.params, group.trained]));
return dict([[Part.PARAMETERS, $mul(($ge(zero, 3n) ? params : group.params), weight)], [Part.GATHERED, (($ge(zero, 3n) && $true(several)) ? $mul($mul(min(2n, layers), group.block), weight) : Term(0n))], [Part.GRADIENTS, $mul(($ge(zero, 2n) ? trained : group.trained), gradient)], [Part.REDUCED, (($ge(zero, 2n) && $true(several)) ? $mul(group.block_trained, weight) : Term(0n))]]);
});
let zero_traffic;
zero_traffic = $def("zero_traffic", "group weight gradient zero micro_batches", [], function (group, weight, gradient, zero, micro_batches) {
let dp, once, reduced, trained;

dp = group.devices;
trained = $mul($floordiv($add(group.trained, $sub(dp, 1n)), dp), $sub(dp, 1n));
[once, reduced] = $tuple([$mul(trained, weight), $mul(trained, gradient)]);
if ($ge(zero, 3n)) {
once = $mul($mul($floordiv($add(group.params, $sub(dp, 1n)), dp), $sub(dp, 1n)), weight);
return dict([["reduce-scatter of gradients", $mul(micro_batches, reduced)], ["all-gather for the forward", $mul(micro_batches, once)], ["all-gather for the backward", $mul(micro_batches, once)]]);
}
return dict([["reduce-scatter of gradients", ($eq(zero, 2n) ? $mul(micro_batches, reduced) : reduced)], [($eq(zero, 0n) ? "all-gather of gradients" : "all-gather of parameters"), ($eq(zero, 0n) ? reduced : once)]]);
});
let all_reduced;
all_reduced = $def("all_reduced", "elements devices", [], function (elements, devices) {

return $mul(2n, $mul($sub(devices, 1n), $floordiv($add(elements, $sub(devices, 1n)), devices)));
});
return {ZERO_STAGES, Part, OF_A_PASS, Held, shard_of, sharded_bytes, zero_traffic, all_reduced};
};
$modules["accounting.memory.optimizer_state"] = () => {
const Bytes = $load("accounting.units").Bytes;
const DEFAULT = $load("accounting.policy").DEFAULT;
const Symbol = $load("accounting.formula").Symbol;
const breakdown = $load("accounting.breakdown").breakdown;
const constant = $load("accounting.formula").constant;
const matrices = $load("accounting.counting.parameters").matrices;
const no_muon_of_adapters = $load("accounting.counting.adapters").no_muon_of_adapters;
const other_tensors = $load("accounting.counting.parameters").other_tensors;
const trained_symbol = $load("accounting.counting.parameters").trained_symbol;
const trained_tensors = $load("accounting.counting.parameters").trained_tensors;
let QUANTISED_BLOCK;
QUANTISED_BLOCK = 256n;
let QUANTISED_FROM;
QUANTISED_FROM = 4096n;
let QUANTISED_MAPS;
QUANTISED_MAPS = $mul(2n, 256n);
let optimizer_state;
optimizer_state = $def("optimizer_state", "shape * policy=", [DEFAULT], function (shape, policy) {
let large, moment, muon, optimizer, params, quantised, scales, terms, words;

optimizer = policy.optimizer;
no_muon_of_adapters(shape, optimizer);
params = trained_symbol(shape);

if ($eq(optimizer, "sgd")) {
[terms, words] = $tuple([dict([["momentum", $mul(policy.moment_bytes, params)]]), ("" + "SGD: one " + $format(policy.moment_dtype, "") + " momentum")]);
} else {
if ($eq(optimizer, "adamw8bit")) {
large = [...(function* ($first) { for (const [count, size] of $first) if ($ge(size, QUANTISED_FROM)) yield $tuple([count, size]); })(trained_tensors(shape))];
quantised = Symbol("quantised_params", sum((function* ($first) { for (const [count, size] of $first) yield $mul(count, size); })(large)));
scales = Symbol("scale_blocks", sum((function* ($first) { for (const [count, size] of $first) yield $mul(count, $neg($floordiv($neg(size), QUANTISED_BLOCK))); })(large)));
moment = $add(quantised, $mul(4n, $sub(params, quantised)));
terms = dict([["first moment", moment], ["second moment", moment]]);
terms = $union(terms, dict([["scales", $mul($mul(2n, 4n), scales)], ["tables", constant($mul(4n, QUANTISED_MAPS))]]));
words = ("" + "AdamW in 8 bits: two moments of a byte with one fp32 scale for " + $format(QUANTISED_BLOCK, "") + " of each, in fp32 where a tensor has fewer than " + $format(QUANTISED_FROM, ("" + ",")) + ", and two tables of what a byte means");
} else {
if ($eq(optimizer, "muon")) {
muon = Symbol("muon_params", sum((function* ($first) { for (const [[rows, columns], count] of $first) yield $mul($mul(rows, columns), count); })(matrices(shape).items())));
terms = dict([["momentum", $mul(4n, muon)], ["first moment", $mul(4n, $sub(params, muon))], ["second moment", $mul(4n, $sub(params, muon))]]);
words = "Muon: one fp32 momentum for the matrices of the blocks, AdamW's two moments for the rest";
} else {
moment = $mul(policy.moment_bytes, params);
[terms, words] = $tuple([dict([["first moment", moment], ["second moment", moment]]), ("" + "AdamW: two " + $format(policy.moment_dtype, "") + " moments")]);
}
}
}
if ($true(policy.bytes.master_weights)) {
$set(terms, "master weights", $mul(4n, params));
words = $add(words, ", and fp32 master weights");
}
return breakdown("optimizer state", Bytes, terms, words);
});
let state_tensors;
state_tensors = $def("state_tensors", "shape policy", [], function (shape, policy) {
let count, optimizer, size, states;

optimizer = policy.optimizer;
states = [];
if ($eq(optimizer, "muon")) {
states = $add(states, [...(function* ($first) { for (const [[rows, columns], count] of $first) yield $tuple([count, $mul($mul(4n, rows), columns)]); })(matrices(shape).items())]);
}
for ([count, size] of ($eq(optimizer, "muon") ? other_tensors(shape) : trained_tensors(shape))) {
if (($eq(optimizer, "adamw8bit") && $ge(size, QUANTISED_FROM))) {
states = $add(states, [$tuple([$mul(2n, count), size]), $tuple([$mul(2n, count), $mul(4n, $neg($floordiv($neg(size), QUANTISED_BLOCK)))])]);
} else {
states.append($tuple([$mul(($eq(optimizer, "sgd") ? 1n : 2n), count), $mul(policy.moment_bytes, size)]));
}
}
if ($true(policy.bytes.master_weights)) {
states = $add(states, [...(function* ($first) { for (const [count, size] of $first) yield $tuple([count, $mul(4n, size)]); })(trained_tensors(shape))]);
}
return states;
});
let step_temporaries;
step_temporaries = $def("step_temporaries", "shape policy", [], function (shape, policy) {
let columns, largest, rows, sides;

if ($eq(policy.optimizer, "muon")) {
sides = max(matrices(shape), {__proto__: $k, key: ((size) => $add($mul($mul(8n, $item(size, 0n)), $item(size, 1n)), $mul(4n, $pow($item(size, 0n), 2n))))});
[rows, columns] = $tuple([Symbol("matrix_rows", $item(sides, 0n)), Symbol("matrix_columns", $item(sides, 1n))]);
return [$tuple([1n, $mul(4n, $mul(rows, columns))]), $tuple([2n, $mul(2n, $mul(rows, columns))]), $tuple([2n, $mul(2n, $mul(rows, rows))])];
}
if (($eq(policy.optimizer_step, "fused") || $eq(policy.optimizer, "adamw8bit"))) {
return [];
}
if ($eq(policy.optimizer_step, "foreach")) {
return [$tuple([1n, $mul(4n, trained_symbol(shape))])];
}
largest = Symbol("largest_tensor", max((function* ($first) { for (const [, size] of $first) yield size; })(trained_tensors(shape))));
return [$tuple([($eq(policy.optimizer, "sgd") ? 1n : 2n), $mul(4n, largest)])];
});
return {QUANTISED_BLOCK, QUANTISED_FROM, QUANTISED_MAPS, optimizer_state, state_tensors, step_temporaries};
};
$modules["accounting.cluster.device"] = () => {
const FLOPs = $load("accounting.units").FLOPs;
const Held = $load("accounting.cluster.zero").Held;
const LatentAttention = $load("accounting.layer").LatentAttention;
const Parameters = $load("accounting.units").Parameters;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const adapted = $load("accounting.counting.adapters").adapted;
const block_parameters = $load("accounting.counting.parameters").block_parameters;
const breakdown = $load("accounting.breakdown").breakdown;
const expert_parameters = $load("accounting.counting.parameters").expert_parameters;
const forward_flops = $load("accounting.counting.flops").forward_flops;
const lru_cache = $load("functools").lru_cache;
const parameters = $load("accounting.counting.parameters").parameters;
const replace = $load("dataclasses").replace;
const shard = $load("accounting.cluster.layout").shard;
const stack = $load("accounting.counting.layers").stack;
let device_parameters;
device_parameters = $def("device_parameters", "shape layout place", [], function (shape, layout, place) {
let first, last, mine, missing, rows, terms;

[first, last] = $tuple([$eq(place.stage, 0n), $eq(place.stage, $sub(layout.pipeline, 1n))]);
mine = shard(shape, layout, place);
terms = dict(getattr(parameters(mine), "terms"));
rows = $mul(Symbol("vocab", getattr(mine, "vocab_rows")), Symbol("d_model", getattr(shape, "d_model")));
if (!$true(first)) {
$set(terms, "embedding", Term(0n));$set(terms, "positions", $item(terms, "embedding"));
}
for (missing of $tuple([$and(!$true(last), () => $gt(shape.norms, 0n)), $and(!$true(first), () => shape.embedding_norm)])) {
if ($true(missing)) {
$set(terms, "norms", $sub($item(terms, "norms"), $mul(Symbol("d_model", getattr(shape, "d_model")), ($true(shape.biased_norm) ? 2n : 1n))));
}
}
if (!$true(last)) {
$set(terms, "head", Term(0n));
} else {
if (($true(shape.tied_embeddings) && !$true(first))) {
$set(terms, "head", rows);
}
}
return breakdown(("" + "parameters of stage " + $format(place.stage, "") + ", rank " + $format(place.tensor_rank, "")), Parameters, terms, ("" + "one of " + $format(layout.tensor, "") + " shares of " + $format(mine.num_layers, "") + " of " + $format(shape.num_layers, "") + " layers"));
});
let device_flops;
device_flops = $def("device_flops", "shape layout place batch_size= seq_len= * pairs=", [1n, null, "full"], function (shape, layout, place, batch_size, seq_len, pairs) {
let cp, mine, terms;

mine = shard(shape, layout, place);
terms = dict(getattr(forward_flops(mine, shape.sequence(seq_len), batch_size, {__proto__: $k, pairs: pairs}), "terms"));
if ($gt(layout.context, 1n)) {
cp = Symbol("cp", getattr(layout, "context"));
terms = dict((function* ($first) { for (const [name, term] of $first) yield [name, $floordiv($add(term, $sub(cp, 1n)), cp)]; })(terms.items()));
}
if ($ne(place.stage, $sub(layout.pipeline, 1n))) {
terms.$delete("head");
}
return breakdown(("" + "forward FLOPs of stage " + $format(place.stage, "") + ", rank " + $format(place.tensor_rank, "")), FLOPs, terms, "matrix multiplications only");
});
let replicated_parameters;
replicated_parameters = $def("replicated_parameters", "shape layout place", [], function (shape, layout, place) {
let biases, count, inside, latents, mine, on_device, one, whole;

[on_device, mine] = $tuple([device_parameters(shape, layout, place), shard(shape, layout, place)]);
if ($isnot(shape.lora_rank, null)) {
whole = sum((function* ($first) { for (const [name, [into, out]] of $first) yield int(($in(name, $tuple(["output", "down"])) ? out : into)); })(adapted(mine).items()));
return $mul($mul(mine.num_layers, shape.lora_rank), whole);
}
biases = $mul($mul(shape.d_model, mine.num_layers), shape.biased_output);
if ($true(shape.biased_ffn)) {
biases = $add(biases, $mul(shape.d_model, sum((function* ($first) { for (const [one, count] of $first) yield $mul(count, $or(one.experts, () => 1n)); })(mine.ffns.items()))));
}
latents = 0n;
for ([one, count] of mine.attentions.items()) {
if ($true(isinstance(one, LatentAttention))) {
latents = $add(latents, $mul($mul(count, shape.d_model), $add($add($or(one.q_rank, () => 0n), one.kv_rank), one.rope_dim)));
}
}
inside = $add(biases, latents);
return $add($add($add(int($item(on_device, "norms")), int($item(on_device, "positions"))), int($item(on_device, "router"))), inside);
});
let replicated;
replicated = $def("replicated", "shape layout place", [], function (shape, layout, place) {

return _replicated(shape, plain(layout), place);
});
let plain;
plain = lru_cache({__proto__: $k, maxsize: 256n})($def("plain", "layout", [], function (layout) {

return replace(layout, {__proto__: $k, zero: 0n, micro_batches: 1n});
}));
let _replicated;
_replicated = lru_cache({__proto__: $k, maxsize: $shl(1n, 11n)})($def("_replicated", "shape layout place", [], function (shape, layout, place) {
let adapters, block, block_experts, blocks, dp, edp, expert_layers, experts, largest, layers, mine, of_experts, on_device, others, outside, params, trained;
[on_device, mine] = $tuple([device_parameters(shape, layout, place), shard(shape, layout, place)]);
layers = mine.num_layers;
blocks = dict((function* ($first) { for (const kind of $first) yield [kind, sum(block_parameters(mine, kind))]; })(stack(mine).counts));
largest = max(blocks.values());
dp = Symbol("dp", getattr(layout, "replicas"));
if ($isnot(shape.lora_rank, null)) {
if ($gt(layout.expert, 1n)) {
throw ValueError(("" + "expert " + $format(layout.expert, "") + ": adapters of experts that several devices share are not counted"));
}
adapters = int($item(on_device, "adapters"));
[params, block] = $tuple([Symbol("n_params", int(getattr(on_device, "total"))), Symbol("block_params", $add(largest, $floordiv(adapters, layers)))]);
trained = $tuple([Symbol("adapter_params", adapters), Symbol("block_adapters", $floordiv(adapters, layers))]);
return [Held(params, block, dp, ...trained)];
}
of_experts = expert_parameters(mine);
expert_layers = sum((function* ($first) { for (const [one, count] of $first) if ($isnot(one.experts, null)) yield count; })(mine.ffns.items()));
if (($eq(layout.expert, 1n) || !$true(of_experts))) {
block = Symbol("block_params", largest);
params = Symbol("n_params", int(getattr(on_device, "total")));
return [Held(params, block, dp, params, block)];
}
experts = Symbol("expert_params", of_experts);
edp = Symbol("edp", $floordiv(layout.replicas, layout.expert));
block_experts = Symbol("block_experts", $floordiv(of_experts, expert_layers));
others = Symbol("n_params", $sub(int(getattr(on_device, "total")), of_experts));
outside = [...(function* ($first) { for (const [kind, size] of $first) yield ($is(kind.ffn.experts, null) ? size : $sub(size, int(block_experts))); })(blocks.items())];
block = Symbol("block_params", max(outside));
return [Held(others, block, dp, others, block), Held(experts, block_experts, edp, experts, block_experts)];
}));
return {device_parameters, device_flops, replicated_parameters, replicated, plain, _replicated};
};
$modules["accounting.cluster.layout"] = () => {
const Attention = $load("accounting.layer").Attention;
const Layer = $load("accounting.layer").Layer;
const ZERO_STAGES = $load("accounting.cluster.zero").ZERO_STAGES;
const choose = $load("accounting.checks").choose;
const dataclass = $load("dataclasses").dataclass;
const lru_cache = $load("functools").lru_cache;
const no_value_embeddings = $load("accounting.shape").no_value_embeddings;
const positive = $load("accounting.checks").positive;
const replace = $load("dataclasses").replace;
let Layout;
Layout = $class("Layout", [], true, [["data", 1n], ["tensor", 1n], ["pipeline", 1n], ["zero", 0n], ["sequence_parallel", false], ["micro_batches", 1n], ["context", 1n], ["expert", 1n]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let name;
for (name of $tuple(["data", "tensor", "pipeline", "micro_batches", "context", "expert"])) {
positive(name, getattr(self, name));
}
if (($true(isinstance(getattr(self, "zero"), bool)) || !$true(isinstance(getattr(self, "zero"), int)))) {
throw ValueError(("" + "zero must be a whole number from 0 to 3, and " + $format(repr(self.zero), "") + " is not"));
}
choose("zero", str(getattr(self, "zero")), ZERO_STAGES);
if ($true($mod(self.replicas, self.expert))) {
throw ValueError(("" + "expert " + $format(self.expert, "") + " does not divide data × context " + $format(self.replicas, "") + ": give a divisor"));
}
});
$c.gpus = property($def("gpus", "self", [], function (self) {

return $mul($mul(self.replicas, self.tensor), self.pipeline);
}));
$c.replicas = property($def("replicas", "self", [], function (self) {

return $mul(self.data, self.context);
}));
$c.words = property($def("words", "self", [], function (self) {
let experts, product;

product = ("" + "data " + $format(self.data, "") + " × context " + $format(self.context, "") + " × tensor " + $format(self.tensor, "") + " × pipeline " + $format(self.pipeline, ""));
experts = ($gt(self.expert, 1n) ? ("" + ", experts shared by " + $format(self.expert, "") + " of data × context") : "");
return ("" + $format(product, "") + " = " + $format(self.gpus, "") + " devices" + $format(experts, ""));
}));
$c.in_flight = $def("in_flight", "self stage", [], function (self, stage) {

return min(getattr(self, "micro_batches"), $sub(self.pipeline, stage));
});
});
let Place;
Place = $class("Place", [], true, [["stage", 0n], ["tensor_rank", 0n], ["data_rank", 0n]], ($c) => {
$c.words = property($def("words", "self", [], function (self) {

return ("" + "stage " + $format(self.stage, "") + ", rank " + $format(self.tensor_rank, ""));
}));
});
let FIRST;
FIRST = Place();
let split;
split = $def("split", "whole parts", [], function (whole, parts) {

return [...(function* ($first) { for (const at of $first) yield $add($floordiv(whole, parts), $lt(at, $mod(whole, parts))); })(range(parts))];
});
let places;
places = $def("places", "layout", [], function (layout) {

return (function* ($first) { for (const stage of $first) for (const rank of range(getattr(layout, "tensor"))) yield Place(stage, rank); })(range(getattr(layout, "pipeline")));
});
let shard;
shard = lru_cache({__proto__: $k, maxsize: $shl(1n, 10n)})($def("shard", "shape layout place", [], function (shape, layout, place) {
let after, at, before, devices, fewest, group, heads, key, keys, kv, layer, layers, leading, mine, most, name, own, part, pattern, rank, sharing, softmax, tensor, widths;

if ($gt(layout.gpus, 1n)) {
no_value_embeddings(shape, "a device's share");
}
if (($gt(layout.tensor, 1n) && $true(shape.mixers))) {
throw ValueError(("" + "tensor " + $format(layout.tensor, "") + ": shares of layers with a state are not counted, use tensor 1"));
}
widths = [...(function* ($first) { for (const one of $first) for (const size of $tuple([one.d_ff, one.shared_d_ff])) if ($true(size)) yield size; })(shape.ffns)];
for ([name, most] of $tuple([$tuple(["num_heads", shape.num_heads]), $tuple(["d_ff", min(widths)]), $tuple(["vocabulary", shape.vocab_rows])])) {
if ($gt(layout.tensor, most)) {
throw ValueError(("" + "tensor " + $format(layout.tensor, "") + " is more than " + $format(name, "") + " " + $format(most, "") + ": every device needs a share of it"));
}
}
if ($gt(layout.pipeline, shape.num_layers)) {
throw ValueError(("" + "pipeline " + $format(layout.pipeline, "") + " is more than num_layers " + $format(shape.num_layers, "") + ": every stage needs a layer"));
}
fewest = min((function* ($first) { for (const one of $first) if ($isnot(one.experts, null)) yield one.experts; })(shape.ffns), {__proto__: $k, default: 1n});
if ($gt(layout.expert, fewest)) {
throw ValueError(("" + "expert " + $format(layout.expert, "") + " is more than experts " + $format(fewest, "") + ": every device needs one"));
}
for ([name, at, devices] of $tuple([$tuple(["stage", place.stage, layout.pipeline]), $tuple(["tensor_rank", place.tensor_rank, layout.tensor]), $tuple(["data_rank", place.data_rank, layout.replicas])])) {
if (($true(isinstance(at, bool)) || !$true(isinstance(at, int)) || !($le(0n, at) && $lt(at, devices)))) {
throw ValueError(("" + $format(name, "") + " must be a whole number of at least 0 and below " + $format(devices, "") + ", and " + $format(repr(at), "") + " is not"));
}
}
[group, kv] = $tuple([$floordiv(shape.num_heads, shape.kv_heads), shape.kv_heads]);
if ($le(layout.tensor, kv)) {
keys = $item(split(kv, getattr(layout, "tensor")), place.tensor_rank);
heads = $mul(keys, group);
} else {
key = $floordiv($mul(place.tensor_rank, kv), layout.tensor);
sharing = [...(function* ($first) { for (const rank of $first) if ($eq($floordiv($mul(rank, kv), layout.tensor), key)) yield rank; })(range(getattr(layout, "tensor")))];
[keys, heads] = $tuple([1n, $item(split(group, len(sharing)), sharing.index(getattr(place, "tensor_rank")))]);
}
layers = split(getattr(shape, "num_layers"), getattr(layout, "pipeline"));
before = sum($slice(layers, null, place.stage));
after = $add(before, $item(layers, place.stage));
[rank, tensor] = $tuple([place.tensor_rank, layout.tensor]);
part = $def("part", "size", [], function (size) {
return ($is(size, null) ? null : $item(split(size, tensor), rank));
});
layer = $def("layer", "one", [], function (one) {
let experts_held, ffn, share, width;

if (($is(one.ffn, null) && ($eq(layout.expert, 1n) || $is(shape.experts, null)))) {
return one;
}
ffn = shape.kind(one).ffn;
experts_held = ffn.experts_held;
if (($gt(layout.expert, 1n) && $isnot(ffn.experts, null))) {
experts_held = $item(split(getattr(ffn, "held"), getattr(layout, "expert")), 0n);
}
width = ($is(one.ffn, null) ? ffn.d_ff : one.ffn.d_ff);
share = replace(ffn, {__proto__: $k, d_ff: part(width), shared_d_ff: part(getattr(ffn, "shared_d_ff")), experts_held: experts_held});
return Layer(getattr(one, "attention"), share);
});
mine = shape.between(before, after);
[leading, pattern] = $tuple([tuple(map(layer, getattr(mine, "leading"))), tuple(map(layer, getattr(mine, "layers")))]);
own = any((function* ($first) { for (const one of $first) yield $is(one.ffn, null); })($tuple([...leading, ...pattern])));
softmax = any((function* ($first) { for (const one of $first) yield isinstance(one, Attention); })(mine.attentions));
return replace(mine, {__proto__: $k, vocab_size: $item(split(getattr(shape, "vocab_rows"), tensor), rank), vocab_multiple: 1n, num_heads: heads, num_kv_heads: ($true(softmax) ? keys : null), head_dim: ($true(softmax) ? shape.head_width : null), d_ff: ($le(tensor, shape.d_ff) ? $item(split(getattr(shape, "d_ff"), tensor), rank) : shape.d_ff), experts: ($true(own) ? shape.experts : null), experts_per_token: ($true(own) ? shape.experts_per_token : null), leading: leading, layers: pattern});
}));
return {Layout, Place, FIRST, split, places, shard};
};
$modules["accounting.memory.activations"] = () => {
const Component = $load("accounting.memory.records").Component;
const Dimensions = $load("accounting.counting.dimensions").Dimensions;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const OF_FFN_MATRICES = $load("accounting.counting.adapters").OF_FFN_MATRICES;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const adapted = $load("accounting.counting.adapters").adapted;
const adapter_elements = $load("accounting.counting.adapters").adapter_elements;
const block_weights = $load("accounting.counting.parameters").block_weights;
const no_value_embeddings = $load("accounting.shape").no_value_embeddings;
const positive = $load("accounting.checks").positive;
const rank_of = $load("accounting.counting.adapters").rank_of;
const stack = $load("accounting.counting.layers").stack;
const transformers_blocks = $load("accounting.memory.transformers_blocks");
let QUERY_BLOCK;
QUERY_BLOCK = 32n;
let ForwardPass;
ForwardPass = $class("ForwardPass", [], false, [], ($c) => {
$c.__init__ = $def("__init__", "self shape batch_size seq_len policy shards= context_shards=", [1n, 1n], function (self, shape, batch_size, seq_len, policy, shards, context_shards) {
let cp, tp;
no_value_embeddings(shape, "the memory of training");
[self.shape, self.policy, self.stack] = $tuple([shape, policy, stack(shape)]);
if ($isnot(shape.lora_rank, null)) {
_only_counted_adapters(shape, policy);
}
if (($eq(policy.precision, "fp8") && (!$true(shape.plain) || $gt(shape.most_experts, 1n) || $ne(policy.model_code, "lm")))) {
throw ValueError("precision 'fp8' is counted of dense models that lm can build: use 'bf16'");
}
self.transformers = $or($eq(policy.model_code, "transformers"), () => !$true(shape.plain));
if ($true(self.transformers)) {
transformers_blocks.only_counted(self);
}
if (($gt(context_shards, 1n) && $eq(policy.attention_kernel, "blocks"))) {
throw ValueError("attention_kernel 'blocks' is lm's on a CPU, where no sequence is shared: use 'fused'");
}
self.batch = Symbol("batch", positive("batch_size", batch_size));
self.seq = Symbol("seq", shape.sequence(seq_len));
cp = Symbol("cp", context_shards);
self.queries = ($eq(context_shards, 1n) ? self.seq : $floordiv($add(self.seq, $sub(cp, 1n)), cp));
self.tokens = $mul(self.batch, self.queries);
self.n = Dimensions(shape);
self.act = Symbol("act_bytes", getattr(policy.bytes, "activations"));
self.operand = ($eq(policy.precision, "fp8") ? Symbol("operand_bytes", 1n) : self.act);
self.residual = Symbol("residual_bytes", getattr(policy.bytes, "residual"));
self.weight = Symbol("weight_bytes", getattr(policy.bytes, "weights"));
self.gradient = Symbol("gradient_bytes", getattr(policy, "gradient_bytes"));
tp = Symbol("tp", shards);
self.between = ($eq(shards, 1n) ? self.tokens : $mul(self.batch, $floordiv($add(self.queries, $sub(tp, 1n)), tp)));
});
$c.code = property($def("code", "self", [], function (self) {

return ("" + "as " + $format(($true(self.transformers) ? "transformers" : "lm"), "") + " computes it without dropout");
}));
$c.window = property($def("window", "self", [], function (self) {

return min((function* ($first) { for (const kind of $first) if ($true(kind.attention.window)) yield kind.attention.window; })(self.shape.counts), {__proto__: $k, default: null});
}));
$c.narrow = property($def("narrow", "self", [], function (self) {

return $lt(self.policy.bytes.activations, 4n);
}));
$c.loss_vocab = property($def("loss_vocab", "self", [], function (self) {
let padded;

padded = $ne(self.shape.vocab_rows, self.shape.vocab_size);
return ($true(padded) ? Symbol("vocab_unpadded", getattr(self.shape, "vocab_size")) : self.n.vocab);
}));
});
let _only_counted_adapters;
_only_counted_adapters = $def("_only_counted_adapters", "shape policy", [], function (shape, policy) {
let experts, four_bits, only;

four_bits = $eq(policy.frozen_dtype, "nf4");
only = dict([["precision", $tuple(["fp32", "bf16", "pure_bf16", ...($true(four_bits) ? $tuple(["autocast"]) : $tuple([]))])]]);
transformers_blocks.only_with("the memory of training adapters", policy, dict([...transformers_blocks.COUNTED.items(), ...only.items()]));
if ($isnot((experts = next(iter(getattr(shape, "ffns"))).experts), null)) {
throw ValueError(("" + "the memory of training adapters is not counted with experts " + $format(experts, "") + ": leave them out"));
}
});
let shared_tensors;
shared_tensors = $def("shared_tensors", "run", [], function (run) {
let ids, kinds, shared, tables, window;

[window, tables] = $tuple([run.window, []]);
if ($true(run.transformers)) {
kinds = ($eq(run.shape.position, "learned") ? 2n : 1n);
shared = dict([[Component.TOKEN_IDS, [$tuple([kinds, $mul(8n, run.tokens)])]], [Component.TABLES, transformers_blocks.tables(run)]]);
if ($true(run.shape.embedding_norm)) {
$set(shared, Component.EMBEDDING_NORM, norm_tensors(run, getattr(run, "tokens"), getattr(run.n, "d_model")));
}
return shared;
}
if ($eq(run.shape.position, "rope")) {
tables.append($tuple([1n, $mul(4n, $mul(run.n.max_seq, run.n.head_dim))]));
}
if ($eq(run.policy.attention_kernel, "blocks")) {
tables.append($tuple([1n, $mul(8n, run.queries)]));
}
if (($eq(run.policy.attention_kernel, "fused") && $isnot(window, null) && $lt(window, int(getattr(run, "seq"))))) {
tables.append($tuple([1n, $mul($mul(run.queries, run.seq), run.act)]));
}
ids = ($is(run.shape.lora_rank, null) ? [$tuple([1n, $mul(8n, run.tokens)])] : []);
return dict([[Component.TOKEN_IDS, ids], [Component.TABLES, tables]]);
});
let saved_by_layers;
saved_by_layers = $def("saved_by_layers", "run layers", [], function (run, layers) {
let count, kind, one, saved, tensors;

saved = dict([]);
for ([kind, count] of ($ne(run.policy.offload, "activations") ? layers.items() : $tuple([]))) {
if ((!$true(count) && $gt(len(layers), 1n))) {
continue;
}
for ([one, tensors] of saved_by_block(run, kind).items()) {
saved.setdefault(one, []).extend((function* ($first) { for (const [each, size] of $first) yield $tuple([$mul(count, each), size]); })(tensors));
}
}
return saved;
});
let saved_by_block;
saved_by_block = $def("saved_by_block", "run kind", [], function (run, kind) {
let block, inputs;

inputs = [$tuple([1n, $mul($mul(run.between, run.n.d_model), run.residual)])];
if ($eq(run.policy.activation_checkpointing, "full")) {
return dict([[Component.BLOCK_INPUTS, inputs]]);
}
if ($eq(run.policy.activation_checkpointing, "operators")) {
return dict([[Component.BLOCK_INPUTS, inputs], ..._outputs(run, kind).items()]);
}
block = block_tensors(run, kind);
if ($eq(run.policy.activation_checkpointing, "selective")) {
block.$delete(Component.ATTENTION_WEIGHTS);
$set(block, Component.QKV, ($true(run.transformers) ? transformers_blocks.entering(run, kind) : _views(run)));
}
return block;
});
let block_tensors;
block_tensors = $def("block_tensors", "run kind", [], function (run, kind) {
let act, before, copied, count, ffn_input, hidden, inputs, inside, n, norms, others, outputs, saved, shape, size, statistics, tokens;

[shape, n, act, tokens] = $tuple([run.shape, run.n, run.act, run.tokens]);
norms = shape.norms_of_block;
[before, statistics] = $gathered($or(norm_tensors(run, getattr(run, "between"), getattr(n, "d_model")), () => [$tuple([0n, Term(0n)])]), 1, 0);
inputs = ($true(shape.parallel) ? 1n : norms);
saved = dict([[Component.NORMS, [$tuple([$mul(inputs, $item(before, 0n)), $item(before, 1n)]), ...(function* ($first) { for (const [count, size] of $first) yield $tuple([$mul(norms, count), size]); })(statistics)]], [Component.ATTENTION_INPUT, [$tuple([1n, $mul($mul(run.between, n.d_model), run.operand)])]]]);
ffn_input = [$tuple([(($true(shape.parallel) && $eq(norms, 1n)) ? 0n : 1n), $mul($mul(run.between, n.d_model), run.operand)])];
if ($true(run.transformers)) {
saved = $union(saved, transformers_blocks.of_attention(run, kind));
return dict([...saved.items(), [Component.FFN_INPUT, ffn_input], ...transformers_blocks.of_ffn(run, kind).items()]);
}
if ($true(shape.qk_norm)) {
$set(saved, Component.QK_NORMS, _qk_norms(run));
}
$set(saved, Component.QKV, _qkv(run, kind));
$set(saved, Component.ATTENTION_WEIGHTS, _attention_weights(run));
$set(saved, Component.ATTENTION_OUTPUT, [$tuple([1n, $mul($mul($mul(tokens, n.n_heads), n.head_dim), act)])]);
if ($eq(run.policy.precision, "fp8")) {
$item(saved, Component.ATTENTION_OUTPUT).append($tuple([1n, $mul($mul($mul(tokens, n.n_heads), n.head_dim), run.operand)]));
}
$set(saved, Component.FFN_INPUT, ffn_input);
hidden = $mul($mul(tokens, FfnDimensions(shape, getattr(kind, "ffn")).d_ff), act);
outputs = ($eq(run.policy.gate_kernel, "fused") ? 1n : 2n);
inside = ($true(shape.gated) ? [$tuple([1n, $mul(2n, hidden)]), $tuple([outputs, hidden])] : [$tuple([2n, hidden])]);
if ($eq(run.policy.precision, "fp8")) {
[others, [count, size]] = $gathered(inside, 0, 1);
inside = [...others, $tuple([$sub(count, 1n), size]), $tuple([1n, $mul($mul(tokens, FfnDimensions(shape, getattr(kind, "ffn")).d_ff), run.operand)])];
}
$set(saved, Component.FFN_HIDDEN, [...(function* ($first) { for (const [count, size] of $first) yield $tuple([$mul(kind.ffn.active, count), size]); })(inside)]);
if ($isnot(kind.ffn.experts, null)) {
$set(saved, Component.ROUTER, _router(run, getattr(kind, "ffn")));
}
if ($eq(run.policy.precision, "autocast")) {
copied = ($is(shape.lora_rank, null) ? Symbol("block_weights", block_weights(shape)) : adapter_elements(shape, 1n));
$set(saved, Component.WEIGHTS_IN_BF16, [$tuple([1n, $mul(2n, copied)])]);
}
return ($is(shape.lora_rank, null) ? saved : _with_adapters(run, saved));
});
let _with_adapters;
_with_adapters = $def("_with_adapters", "run saved", [], function (run, saved) {
let component, components, copies, count, of_ffn, others, readers, size, targets;

components = dict(saved);
targets = set(adapted(getattr(run, "shape")));
for ([component, readers] of $tuple([$tuple([Component.ATTENTION_INPUT, set(["query", "key", "value", "qkv"])]), $tuple([Component.FFN_INPUT, set(["gate", "up", "gate_up"])])])) {
copies = len($meet(targets, readers));
copies = ($eq(run.policy.precision, "autocast") ? copies : min(copies, 1n));
$set(components, component, [...(function* ($first) { for (const [count, size] of $first) yield $tuple([$mul(copies, count), size]); })($item(components, component))]);
}
if (($notin("output", targets) && $eq(run.policy.attention_kernel, "eager"))) {
components.$delete(Component.ATTENTION_OUTPUT);
}
if ($notin("down", targets)) {
[others, [count, size]] = $gathered($item(components, Component.FFN_HIDDEN), 0, 1);
$set(components, Component.FFN_HIDDEN, [...others, $tuple([$sub(count, 1n), size])]);
}
for ([component, of_ffn] of $tuple([$tuple([Component.ADAPTERS_OF_ATTENTION, false]), $tuple([Component.ADAPTERS_OF_FFN, true])])) {
count = sum((function* ($first) { for (const name of $first) yield $eq($in(name, OF_FFN_MATRICES), of_ffn); })(targets));
if ($true(count)) {
$set(components, component, [$tuple([count, $mul($mul(run.tokens, rank_of(getattr(run, "shape"))), run.act)])]);
}
}
return components;
});
let _outputs;
_outputs = $def("_outputs", "run kind", [], function (run, kind) {
let act, gate, llama, n, policy, queries, shape, values;

[shape, n, act, policy] = $tuple([run.shape, run.n, run.act, run.policy]);
llama = $and(shape.plain, () => $and($eq(shape.ffn, "swiglu"), () => !($true(shape.bias) || $true(shape.biased_qkv) || $true(shape.post_norm))));
if ((!$true(llama) || $gt(shape.most_experts, 1n) || $isnot(shape.lora_rank, null) || $ne(policy.attention_kernel, "fused"))) {
throw ValueError("activation_checkpointing 'operators' is counted of models like Llama alone: use 'full'");
}
queries = $tuple([1n, $mul($mul(run.tokens, $mul(n.n_heads, n.head_dim)), act)]);
values = $mul($mul(run.tokens, $mul(n.n_kv_heads, n.head_dim)), act);
gate = $mul($mul(run.tokens, FfnDimensions(shape, getattr(kind, "ffn")).d_ff), act);
return dict([[Component.MATMUL_OUTPUTS, [queries, $tuple([1n, $mul($mul(run.between, n.d_model), act)]), $tuple([1n, values]), $tuple([1n, gate])]], [Component.ATTENTION_WEIGHTS, _attention_weights(run)], [Component.ATTENTION_OUTPUT, [queries]]]);
});
let _router;
_router = $def("_router", "run ffn", [], function (run, ffn) {
let act, active, tokens;

[tokens, act, active] = $tuple([run.tokens, run.act, ffn.active]);
return [$tuple([1n, $mul($mul(tokens, FfnDimensions(getattr(run, "shape"), ffn).n_experts), act)]), $tuple([1n, $mul(tokens, act)]), $tuple([active, $mul(8n, tokens)]), $tuple([active, $mul(16n, tokens)]), $tuple([$mul(2n, active), $mul(tokens, act)]), $tuple([$mul(3n, active), $mul($mul(tokens, run.n.d_model), act)])];
});
let _qk_norms;
_qk_norms = $def("_qk_norms", "run", [], function (run) {
let copies, n, saved, tokens;

[n, tokens] = $tuple([run.n, run.tokens]);
copies = $item(dict([["fused", 0n], ["composite", ($true(run.narrow) ? 2n : 1n)]]), run.policy.norm_kernel);
if (($true(copies) && $isnot(run.shape.lora_rank, null))) {
copies = $sub(copies, 1n);
}
saved = [$tuple([1n, $mul(4n, $mul(tokens, n.n_heads))]), $tuple([1n, $mul(4n, $mul(tokens, n.n_kv_heads))])];
if ($true(copies)) {
saved = $add(saved, [$tuple([copies, $mul(4n, $mul($mul(tokens, n.n_heads), n.head_dim))]), $tuple([copies, $mul(4n, $mul($mul(tokens, n.n_kv_heads), n.head_dim))])]);
}
return saved;
});
let _attention_weights;
_attention_weights = $def("_attention_weights", "run", [], function (run) {
let kernel, n, scores;

[n, kernel] = $tuple([run.n, run.policy.attention_kernel]);
if ($eq(kernel, "blocks")) {
scores = scores_in_blocks(int(getattr(run, "seq")));
return [$tuple([1n, $mul($mul($mul(run.batch, n.n_heads), scores), run.act)]), $tuple([1n, $mul(4n, $mul(run.tokens, n.n_heads))])];
}
if ($eq(kernel, "eager")) {
return [$tuple([1n, $mul($mul($mul($mul(run.batch, n.n_heads), run.queries), run.seq), run.act)])];
}
return [$tuple([1n, $mul(4n, $mul(run.tokens, n.n_heads))])];
});
let _projected;
_projected = $def("_projected", "run", [], function (run) {
let n;

n = run.n;
return $tuple([1n, $mul($mul(run.tokens, $mul($add(n.n_heads, $mul(2n, n.n_kv_heads)), n.head_dim)), run.act)]);
});
let _views;
_views = $def("_views", "run", [], function (run) {
let n, rotated, shape;

[n, shape] = $tuple([run.n, run.shape]);
if ($eq(run.policy.attention_kernel, "blocks")) {
return [$tuple([($true(shape.qk_norm) ? 2n : 1n), $item(_projected(run), 1n)])];
}
rotated = $tuple([1n, $mul($mul(run.tokens, $mul($add(n.n_heads, n.n_kv_heads), n.head_dim)), run.act)]);
return (($eq(shape.position, "rope") || $true(shape.qk_norm)) ? [_projected(run), rotated] : [_projected(run)]);
});
let _qkv;
_qkv = $def("_qkv", "run kind", [], function (run, kind) {
let act, copies, n, of_norm, projected, rotated, shape;

[shape, n, act] = $tuple([run.shape, run.n, run.act]);
if ($ne(run.policy.attention_kernel, "eager")) {
return _views(run);
}
copies = copies_of_heads(run, kind);
if (($eq(int(getattr(run, "batch")), 1n) || $eq(shape.kv_heads, 1n))) {
[projected, rotated] = $gathered(_views(run), 1, 0);
if (($true(copies) && $true(rotated))) {
rotated = [$tuple([1n, $mul($mul(run.tokens, $mul(n.n_kv_heads, n.head_dim)), act)])];
}
return [...copies, ...rotated, projected];
}
of_norm = $or($eq(run.policy.norm_kernel, "fused"), () => !$true(run.narrow));
return (($true(shape.qk_norm) && $true(of_norm)) ? [...copies, _projected(run)] : copies);
});
let scores_in_blocks;
scores_in_blocks = $def("scores_in_blocks", "length", [], function (length) {
let whole;

whole = $mul($neg($floordiv($neg(length), QUERY_BLOCK)), QUERY_BLOCK);
return Symbol("block_scores", $floordiv($mul(whole, $add(whole, QUERY_BLOCK)), 2n));
});
let scratch_of_blocks;
scratch_of_blocks = $def("scratch_of_blocks", "run", [], function (run) {
let rows, width;

width = $mul($neg($floordiv($neg(int(getattr(run.n, "head_dim"))), QUERY_BLOCK)), QUERY_BLOCK);
rows = $add($mul($neg($floordiv($neg(int(getattr(run, "seq"))), QUERY_BLOCK)), QUERY_BLOCK), $mul(3n, QUERY_BLOCK));
return $mul(Symbol("block_scratch", $mul($add($mul(5n, width), $mul(3n, QUERY_BLOCK)), rows)), run.act);
});
let copies_of_heads;
copies_of_heads = $def("copies_of_heads", "run kind", [], function (run, kind) {
let kernel, keys_and_values, n, queries;

[n, kernel] = $tuple([run.n, run.policy.attention_kernel]);
if ($true(run.transformers)) {
return transformers_blocks.repeated(run, kind);
}
queries = $tuple([1n, $mul($mul(run.tokens, $mul(n.n_heads, n.head_dim)), run.act)]);
keys_and_values = $tuple([2n, $mul($mul(run.tokens, $mul(n.n_kv_heads, n.head_dim)), run.act)]);
if ($ne(kernel, "eager")) {
return [];
}
if (($eq(int(getattr(run, "batch")), 1n) || $eq(run.shape.kv_heads, 1n))) {
return (($eq(run.shape.kv_heads, run.shape.num_heads) || $eq(int(getattr(run, "seq")), 1n)) ? [] : [queries]);
}
return [queries, keys_and_values];
});
let norm_tensors;
norm_tensors = $def("norm_tensors", "run tokens width", [], function (run, tokens, width) {
let copies;

if ($eq(run.shape.norm, "none")) {
return [];
}
if ($eq(run.shape.norm, "layernorm")) {
return [$tuple([1n, $mul($mul(tokens, width), ($true(run.shape.norm_weights) ? run.residual : Term(4n)))]), $tuple([2n, $mul(4n, tokens)])];
}
if ($eq(run.policy.norm_kernel, "composite")) {
copies = (($isnot(run.shape.lora_rank, null) || !$true(run.shape.norm_weights)) ? 1n : 2n);
return [$tuple([copies, $mul(4n, $mul(tokens, width))]), $tuple([1n, $mul(4n, tokens)])];
}
return [$tuple([1n, $mul($mul(tokens, width), run.residual)]), $tuple([1n, $mul(4n, tokens)])];
});
let head_tensors;
head_tensors = $def("head_tensors", "run", [], function (run) {
let gradients, n, saved;

n = run.n;
saved = dict([[Component.FINAL_NORM, norm_tensors(run, getattr(run, "between"), getattr(n, "d_model"))]]);
if ($eq(run.policy.loss, "chunked")) {
gradients = [$tuple([1n, $mul($mul(run.tokens, n.d_model), run.residual)])];
if ($is(run.shape.lora_rank, null)) {
gradients.append($tuple([1n, $mul($mul(n.vocab, n.d_model), run.weight)]));
}
return dict([...saved.items(), [Component.LOSS, gradients]]);
}
if ($is(run.shape.lora_rank, null)) {
$set(saved, Component.HEAD_INPUT, [$tuple([1n, $mul($mul(run.between, n.d_model), run.act)])]);
}
if ($eq(run.policy.precision, "autocast")) {
$set(saved, Component.HEAD_IN_BF16, [$tuple([1n, $mul(2n, $mul(n.vocab, n.d_model))])]);
}
$set(saved, Component.LOSS, [$tuple([1n, $mul(4n, $mul(run.tokens, run.loss_vocab))]), $tuple([1n, $mul(8n, run.tokens)]), $tuple([1n, Term(4n)])]);
return saved;
});
return {QUERY_BLOCK, ForwardPass, _only_counted_adapters, shared_tensors, saved_by_layers, saved_by_block, block_tensors, _with_adapters, _outputs, _router, _qk_norms, _attention_weights, _projected, _views, _qkv, scores_in_blocks, scratch_of_blocks, copies_of_heads, norm_tensors, head_tensors};
};
$modules["accounting.memory.transformers_blocks"] = () => {
const Attention = $load("accounting.layer").Attention;
const Component = $load("accounting.memory.records").Component;
const FeedForward = $load("accounting.layer").FeedForward;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const Kind = $load("accounting.layer").Kind;
const LatentAttention = $load("accounting.layer").LatentAttention;
const LatentDimensions = $load("accounting.counting.dimensions").LatentDimensions;
const Mixer = $load("accounting.layer").Mixer;
const NotCounted = $load("accounting.shape").NotCounted;
const Tensors = $load("accounting.memory.records").Tensors;
const Term = $load("accounting.formula").Term;
let COUNTED;
COUNTED = dict([["precision", $tuple(["fp32", "bf16", "pure_bf16"])], ["norm_kernel", $tuple(["fused", "composite"])], ["gate_kernel", $tuple(["composite"])], ["attention_kernel", $tuple(["fused", "eager"])]]);
let only_with;
only_with = $def("only_with", "quantity settings counted mistake=", [ValueError], function (quantity, settings, counted, mistake) {
let name, some, value, words;

for ([name, some] of counted.items()) {
if ($notin((value = getattr(settings, name)), some)) {
words = " and ".join(map(str, some));
throw mistake(("" + $format(quantity, "") + " is not counted with " + $format(name, "") + " " + $format(repr(value), "") + ": it is with " + $format(words, "")));
}
}
});
let only_counted;
only_counted = $def("only_counted", "run", [], function (run) {
let kind, layers;

layers = "the memory of training layers as transformers computes them";
only_with(layers, getattr(run, "policy"), COUNTED);
only_with(layers, getattr(run, "shape"), dict([["norm", $tuple(["rmsnorm", "layernorm"])], ["lora_rank", $tuple([null])]]), NotCounted);
for (kind of run.shape.matrix_kinds) {
if ((!$true(_verified(kind)) || ($eq(run.shape.norm, "layernorm") && $true(run.shape.qk_norm)))) {
throw NotCounted("the memory of training is counted of models that lm can build, of dense ones with softmax attention as transformers computes them, and of layers like those of DeepSeek V3, gpt-oss and Llama 4: of others parameters, FLOPs and caches are counted");
}
}
});
let _verified;
_verified = $def("_verified", "kind", [], function (kind) {
let attention, ffn;

[attention, ffn] = $tuple([kind.attention, kind.ffn]);
if ($true(isinstance(attention, LatentAttention))) {
return $and($is(attention.indexer, null), () => $or($is(ffn.experts, null), () => $eq(ffn.router, "sigmoid")));
}
if (($true(isinstance(attention, Mixer)) || $true(attention.beside) || $true(attention.reuses) || $true(attention.gated))) {
return false;
}
if ($is(ffn.experts, null)) {
return true;
}
if ($in(attention.qk_norm, $tuple(["head", "width"]))) {
return false;
}
return $and($eq(ffn.router, ($true(attention.sinks) ? "softmax_of_chosen" : "sigmoid_of_input")), () => !$true(ffn.shared_gate));
});
let _of_llama_4;
_of_llama_4 = $def("_of_llama_4", "run", [], function (run) {
return any((function* ($first) { for (const one of $first) yield $eq(one.router, "sigmoid_of_input"); })(run.shape.ffns));
});
let tables;
tables = $def("tables", "run", [], function (run) {
let n, positions, rotated, shape, width;

[shape, n, positions] = $tuple([run.shape, run.n, run.queries]);
rotated = [...(function* ($first) { for (const one of $first) if ($true(one.rotated)) yield one; })(shape.attentions)];
if (!$true(rotated)) {
return [];
}
if ($isnot(shape.latent, null)) {
return [$tuple([2n, $mul($mul(positions, LatentDimensions(getattr(shape, "latent")).rope_dim), run.act)])];
}
if ($true(_of_llama_4(run))) {
return [$tuple([1n, $mul(4n, $mul(positions, n.head_dim))])];
}
width = ($true(any((function* ($first) { for (const one of $first) yield one.sinks; })(rotated))) ? $floordiv(n.head_dim, 2n) : n.head_dim);
return [$tuple([2n, $mul($mul(positions, width), run.act)])];
});
let masks;
masks = $def("masks", "run layers block", [], function (run, layers, block) {
let kinds, policy, shape;

[shape, policy] = $tuple([run.shape, run.policy]);
if (($ne(policy.attention_kernel, "eager") || $eq(policy.activation_checkpointing, "none"))) {
return [];
}
kinds = ((($lt(0n, shape.windowed_layers) && $lt(shape.windowed_layers, shape.num_layers)) && $true(any(layers.values()))) ? 2n : 1n);
if ($true(_of_llama_4(run))) {
kinds = len(set((function* ($first) { for (const [kind, count] of $first) if (($true(count) || $eq(kind, block))) yield kind.attention.rotated; })(layers.items())));
}
return [$tuple([kinds, $mul($mul($mul(run.batch, run.queries), run.seq), run.act)])];
});
let of_attention;
of_attention = $def("of_attention", "run kind", [], function (run, kind) {
let attention, eager, saved;

saved = dict([]);
attention = kind.attention;
if ($true(isinstance(attention, LatentAttention))) {
$set(saved, Component.LATENTS, _latents(run, attention));
} else {
if ($ne(attention.qk_norm, "none")) {
$set(saved, Component.QK_NORMS, _qk_norms(run, getattr(attention, "qk_norm")));
}
}
if (($true(_of_llama_4(run)) && !$true(attention.rotated))) {
$set(saved, Component.QK_SCALES, [$tuple([1n, $mul(4n, run.queries)])]);
}
eager = $eq(run.policy.attention_kernel, "eager");
$set(saved, Component.QKV, ($true(eager) ? _eager(run, kind) : entering(run, kind)));
$set(saved, Component.ATTENTION_WEIGHTS, _weights(run, kind));
$set(saved, Component.ATTENTION_OUTPUT, [$tuple([1n, $mul($mul(run.tokens, _value_width(run, kind)), run.act)])]);
return saved;
});
let _value_width;
_value_width = $def("_value_width", "run kind", [], function (run, kind) {
if ($true(isinstance(getattr(kind, "attention"), LatentAttention))) {
return $mul(run.n.n_heads, LatentDimensions(getattr(kind, "attention")).value_dim);
}
return $mul(run.n.n_heads, run.n.head_dim);
});
let _latents;
_latents = $def("_latents", "run latent", [], function (run, latent) {
let act, between, m, saved;

[m, between, act] = $tuple([LatentDimensions(latent), run.between, run.act]);
saved = [];
if ($isnot(latent.q_rank, null)) {
saved = $add(saved, [..._norm(run, between, getattr(m, "q_rank"), getattr(m, "q_rank")), $tuple([1n, $mul($mul(between, m.q_rank), act)])]);
}
return [...saved, ..._norm(run, between, getattr(m, "kv_rank"), $add(m.kv_rank, m.rope_dim)), $tuple([1n, $mul($mul(between, m.kv_rank), act)])];
});
let _norm;
_norm = $def("_norm", "run rows width stored", [], function (run, rows, width, stored) {
let statistic;

statistic = $tuple([1n, $mul(4n, rows)]);
if ($eq(run.policy.norm_kernel, "fused")) {
return [$tuple([1n, $mul($mul(rows, stored), run.act)]), statistic];
}
if ($true(run.narrow)) {
return [$tuple([2n, $mul(4n, $mul(rows, width))]), statistic];
}
return [$tuple([1n, $mul(4n, $mul(rows, stored))]), $tuple([1n, $mul(4n, $mul(rows, width))]), statistic];
});
let _qk_norms;
_qk_norms = $def("_qk_norms", "run norm", [], function (run, norm) {
let heads, n, rows, tensors, width;

[n, tensors] = $tuple([run.n, []]);
for (heads of $tuple([n.n_heads, n.n_kv_heads])) {
[rows, width] = $tuple([$mul(run.tokens, heads), n.head_dim]);
if ($eq(norm, "width")) {
[rows, width] = $tuple([run.tokens, $mul(heads, n.head_dim)]);
}
if (($eq(norm, "l2") && ($true(_of_llama_4(run)) || $eq(run.policy.norm_kernel, "composite")))) {
tensors = $add(tensors, [$tuple([1n, $mul(4n, $mul(rows, width))]), $tuple([1n, $mul(4n, rows)])]);
} else {
tensors = $add(tensors, _norm(run, rows, width, width));
}
}
return tensors;
});
let entering;
entering = $def("entering", "run kind", [], function (run, kind) {
let act, keys, m, n, of_query, queries, tokens;

[n, tokens, act] = $tuple([run.n, run.tokens, run.act]);
if ($true(isinstance(getattr(kind, "attention"), LatentAttention))) {
m = LatentDimensions(getattr(kind, "attention"));
of_query = $mul(n.n_heads, $add(m.nope_dim, m.rope_dim));
return [$tuple([2n, $mul($mul(tokens, of_query), act)]), $tuple([1n, $mul($mul(tokens, $mul(n.n_heads, $add(m.nope_dim, m.value_dim))), act)])];
}
[queries, keys] = $tuple([$mul($mul(tokens, $mul(n.n_heads, n.head_dim)), act), $mul($mul(tokens, $mul(n.n_kv_heads, n.head_dim)), act)]);
return ($true(run.shape.repeated_keys) ? [$tuple([3n, queries])] : [$tuple([1n, queries]), $tuple([2n, keys])]);
});
let _eager;
_eager = $def("_eager", "run kind", [], function (run, kind) {
let _, act, heads, n, one, queries, repeats, shape, tokens, values;

[shape, n, tokens, act] = $tuple([run.shape, run.n, run.tokens, run.act]);
one = $eq(int(getattr(run, "batch")), 1n);
if ($true(isinstance(getattr(kind, "attention"), LatentAttention))) {
[[, queries], values] = entering(run, kind);
return [$tuple([2n, queries]), ($true(one) ? values : $tuple([1n, $mul($mul(tokens, _value_width(run, kind)), act)]))];
}
repeats = $and($lt(shape.kv_heads, shape.num_heads), () => !($true(one) && $eq(shape.kv_heads, 1n)));
heads = (($true(repeats) || $true(shape.repeated_keys)) ? n.n_heads : n.n_kv_heads);
return [$tuple([1n, $mul($mul(tokens, $mul(n.n_heads, n.head_dim)), act)]), $tuple([2n, $mul($mul(tokens, $mul(heads, n.head_dim)), act)])];
});
let repeated;
repeated = $def("repeated", "run kind", [], function (run, kind) {
let act, shape, tokens;

[shape, tokens, act] = $tuple([run.shape, run.tokens, run.act]);
if ($ne(run.policy.attention_kernel, "eager")) {
return [];
}
if (($true(isinstance(getattr(kind, "attention"), Attention)) && $lt(shape.kv_heads, shape.num_heads) && !$true(shape.repeated_keys))) {
return $slice(_eager(run, kind), 1n, null);
}
return ($eq(int(getattr(run, "batch")), 1n) ? [] : [$tuple([1n, $mul($mul(tokens, _value_width(run, kind)), act)])]);
});
let _weights;
_weights = $def("_weights", "run kind", [], function (run, kind) {
let in_fp32, rows;

rows = $mul(run.tokens, run.n.n_heads);
if ($eq(run.policy.attention_kernel, "fused")) {
return [$tuple([1n, $mul(4n, rows)])];
}
if ($true(kind.attention.sinks)) {
return [$tuple([1n, $mul($mul(rows, $add(run.seq, 1n)), run.act)]), $tuple([1n, $mul(8n, rows)])];
}
in_fp32 = (($true(run.narrow) && !$true(_of_llama_4(run))) ? [$tuple([1n, $mul(4n, $mul(rows, run.seq))])] : []);
return [...in_fp32, $tuple([1n, $mul($mul(rows, run.seq), run.act)])];
});
let of_ffn;
of_ffn = $def("of_ffn", "run kind", [], function (run, kind) {
let ffn, hidden, m, saved, tokens;

[ffn, tokens] = $tuple([kind.ffn, run.tokens]);
m = FfnDimensions(getattr(run, "shape"), ffn);
if ($is(ffn.experts, null)) {
return dict([[Component.FFN_HIDDEN, _hidden(run, $mul($mul(tokens, m.d_ff), run.act))]]);
}
hidden = _hidden(run, $mul($mul(tokens, m.d_ff), run.act), {__proto__: $k, in_one: true});
saved = dict([[Component.FFN_HIDDEN, [...(function* ($first) { for (const [count, size] of $first) yield $tuple([$mul(ffn.active, count), size]); })(hidden)]]]);
if ($isnot(ffn.shared_d_ff, null)) {
$set(saved, Component.SHARED_FFN_HIDDEN, _hidden(run, $mul($mul(tokens, m.shared_d_ff), run.act)));
}
return dict([...saved.items(), [Component.ROUTER, _router(run, ffn)]]);
});
let _hidden;
_hidden = $def("_hidden", "run hidden * in_one=", [false], function (run, hidden, in_one) {
let count;

count = dict([["clamped_swiglu", 7n], ["swiglu", 4n], ["geglu", 4n], ["gelu_new", 5n], ["relu", 1n]]).get(getattr(run.shape, "ffn"), 2n);
return ($true(in_one) ? [$tuple([1n, $mul(2n, hidden)]), $tuple([$sub(count, 2n), hidden])] : [$tuple([count, hidden])]);
});
let _router;
_router = $def("_router", "run ffn", [], function (run, ffn) {
let act, active, copies, n, n_experts, of_experts, tokens;

[n, tokens, act, active] = $tuple([run.n, run.tokens, run.act, ffn.active]);
n_experts = FfnDimensions(getattr(run, "shape"), ffn).n_experts;
of_experts = [$tuple([active, $mul(16n, tokens)]), $tuple([$mul(3n, active), $mul($mul(tokens, n.d_model), act)])];
if ($eq(ffn.router, "softmax_of_chosen")) {
return [$tuple([active, $mul(8n, tokens)]), $tuple([$mul(2n, active), $mul(tokens, act)]), ...of_experts];
}
if ($eq(ffn.router, "sigmoid")) {
copies = ($true(run.narrow) ? [$tuple([1n, $mul(4n, $mul(tokens, n.d_model))]), $tuple([1n, $mul(4n, $mul(n_experts, n.d_model))])] : []);
return [...copies, $tuple([1n, $mul(4n, $mul(tokens, n_experts))]), $tuple([active, $mul(8n, tokens)]), $tuple([$mul(2n, active), $mul(4n, tokens)]), $tuple([1n, $mul(4n, tokens)]), ...of_experts];
}
return [$tuple([active, $mul(8n, tokens)]), $tuple([$mul(2n, active), $mul(4n, tokens)]), ...of_experts];
});
return {COUNTED, only_with, only_counted, _verified, _of_llama_4, tables, masks, of_attention, _value_width, _latents, _norm, _qk_norms, entering, _eager, repeated, _weights, of_ffn, _hidden, _router};
};
$modules["accounting.memory.training"] = () => {
const BLOCK = $load("accounting.memory.allocator").BLOCK;
const Breakdown = $load("accounting.breakdown").Breakdown;
const Bytes = $load("accounting.units").Bytes;
const Component = $load("accounting.memory.records").Component;
const DEFAULT = $load("accounting.policy").DEFAULT;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const ForwardPass = $load("accounting.memory.activations").ForwardPass;
const Group = $load("accounting.memory.records").Group;
const Item = $load("accounting.memory.records").Item;
const LatentDimensions = $load("accounting.counting.dimensions").LatentDimensions;
const OF_FFN = $load("accounting.memory.records").OF_FFN;
const OF_FFN_MATRICES = $load("accounting.counting.adapters").OF_FFN_MATRICES;
const PhaseKind = $load("accounting.memory.records").PhaseKind;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const TransformerShape = $load("accounting.shape").TransformerShape;
const adapted = $load("accounting.counting.adapters").adapted;
const adapter_elements = $load("accounting.counting.adapters").adapter_elements;
const added = $load("accounting.formula").added;
const attention_matrices = $load("accounting.counting.dimensions").attention_matrices;
const block_parameters = $load("accounting.counting.parameters").block_parameters;
const block_tensors = $load("accounting.memory.activations").block_tensors;
const copies_of_heads = $load("accounting.memory.activations").copies_of_heads;
const dataclass = $load("dataclasses").dataclass;
const head_tensors = $load("accounting.memory.activations").head_tensors;
const human = $load("accounting.units").human;
const instance = $load("accounting.checks").instance;
const items = $load("accounting.memory.records").items;
const masks = $load("accounting.memory.transformers_blocks").masks;
const matrices = $load("accounting.counting.parameters").matrices;
const optimizer_state = $load("accounting.memory.optimizer_state").optimizer_state;
const parameters = $load("accounting.counting.parameters").parameters;
const phase = $load("accounting.memory.records").phase;
const plain_bytes = $load("accounting.memory.records").plain_bytes;
const rank_of = $load("accounting.counting.adapters").rank_of;
const replace = $load("dataclasses").replace;
const saved_by_block = $load("accounting.memory.activations").saved_by_block;
const saved_by_layers = $load("accounting.memory.activations").saved_by_layers;
const scratch_of_blocks = $load("accounting.memory.activations").scratch_of_blocks;
const shared_tensors = $load("accounting.memory.activations").shared_tensors;
const state_tensors = $load("accounting.memory.optimizer_state").state_tensors;
const step_temporaries = $load("accounting.memory.optimizer_state").step_temporaries;
const temporary = $load("accounting.memory.records").temporary;
const tensors = $load("accounting.counting.parameters").tensors;
const trained_symbol = $load("accounting.counting.parameters").trained_symbol;
const trained_tensors = $load("accounting.counting.parameters").trained_tensors;
const waste = $load("accounting.memory.allocator").waste;
let TrainingMemory;
TrainingMemory = $class("TrainingMemory", [Breakdown], true, [["phases"], ["peak"], ["policy"]], ($c) => {

});
let Gradients;
Gradients = $class("Gradients", [], true, [["finished"], ["newest"], ["tensors"]], ($c) => {

});
let Moment;
Moment = $class("Moment", [], true, [["title"], ["kind"], ["gradients"], ["alive"]], ($c) => {

});
let training_memory;
training_memory = $def("training_memory", "shape batch_size seq_len= * policy=", [null, DEFAULT], function (shape, batch_size, seq_len, policy) {
let chunk, chunks, code, convention, fused, moments, peak, phases;

instance("shape", shape, TransformerShape, "SHAPES");
fused = $eq(policy.loss_kernel, "fused");
chunk = Bytes(($true(fused) ? $mul($floordiv(policy.logits_chunk_bytes, 4n), policy.bytes.activations) : policy.logits_chunk_bytes));
chunks = ($eq(policy.loss, "chunked") ? ("" + ", " + $format(human(chunk), "") + " of logits at a time") : "");
code = ForwardPass(shape, batch_size, seq_len, policy).code;
convention = $add(("" + $format(policy.optimizer, "") + ", " + $format(policy.optimizer_step, "") + " step; " + $format(policy.description, "") + $format(chunks, "") + ", " + $format(code, "") + "; "), ($eq(policy.allocator, "cuda") ? "every tensor in a block of its own, what remains of shared segments not in it; " : "no allocator's rounding, "));
convention = $add(convention, ($true(policy.overhead_bytes) ? "driver and libraries as given" : "no driver, no libraries"));
if ($eq(policy.gradient_dtype, "fp32")) {
convention = $add(convention, "; gradients added up in fp32");
}
if ($eq(policy.offload, "optimizer")) {
convention = $add(convention, ("" + "; optimizer state of " + $format(human(getattr(optimizer_state(shape, {__proto__: $k, policy: policy}), "total")), "") + " on the host"));
}
if ($eq(policy.precision, "fp8")) {
convention = $add(convention, "; fp8 by Transformer Engine's rules, not measured");
}
moments = _alive(shape, batch_size, seq_len, policy);
phases = tuple((function* ($first) { for (const [moment, alive] of $first) yield phase(getattr(moment, "title"), getattr(moment, "kind"), alive, convention); })(moments));
peak = max(phases, {__proto__: $k, key: int});
return TrainingMemory(getattr(peak, "title"), Bytes, getattr(peak, "terms"), convention, phases, peak, policy);
});
let training_peak;
training_peak = $def("training_peak", "shape batch_size seq_len= * policy=", [null, DEFAULT], function (shape, batch_size, seq_len, policy) {
let moments;

moments = _alive(shape, batch_size, seq_len, policy);
return max((function* ($first) { for (const [, alive] of $first) yield sum((function* ($first) { for (const item of $first) yield plain_bytes(getattr(item, "tensors")); })(alive)); })(moments));
});
let _alive;
_alive = $def("_alive", "shape batch_size seq_len policy", [], function (shape, batch_size, seq_len, policy) {
let alive, always, bottom, counters, gradients, lasting, moment, moments, offloaded, rounded, run, states;

run = Step(ForwardPass(shape, batch_size, seq_len, policy));
offloaded = $eq(policy.offload, "optimizer");
states = ($true(offloaded) ? Term(0n) : added((function* ($first) { for (const [, term] of $first) yield term; })(optimizer_state(shape, {__proto__: $k, policy: policy}).terms)));
lasting = [...run.weights, ...($true(offloaded) ? [] : state_tensors(shape, policy))];
counters = Term(0n);
if (($true(policy.optimizer.startswith("adamw")) && !$true(offloaded))) {
counters = Symbol("n_tensors", sum((function* ($first) { for (const [count, ] of $first) yield count; })(trained_tensors(shape))));
}
always = [...run.parameters(), Item("optimizer state", getattr(Group, "OPTIMIZER_STATE"), [$tuple([1n, states])])];
moments = [];
bottom = ($true(run.frozen) ? [] : [run.embedding_backward({__proto__: $k, tied: shape.tied_embeddings})]);
for (moment of [...run.losses(), ...run.blocks(), ...bottom, run.stepping()]) {
gradients = moment.gradients;
alive = [...always, Item("gradients", getattr(Group, "GRADIENTS"), [$tuple([1n, gradients.finished]), $tuple([1n, gradients.newest])]), ...moment.alive];
if ($true(policy.overhead_bytes)) {
alive.append(overhead(policy));
}
if ($eq(policy.allocator, "cuda")) {
rounded = [...lasting, ...gradients.tensors, ...(function* ($first) { for (const item of $first) for (const one of item.tensors) yield one; })(moment.alive)];
alive.append(Item("allocator rounding", getattr(Group, "ALLOCATOR"), [$tuple([1n, $add($mul(BLOCK, counters), waste(rounded))])]));
}
moments.append($tuple([moment, alive]));
}
return moments;
});
let overhead;
overhead = $def("overhead", "policy", [], function (policy) {

return Item("fixed overhead", getattr(Group, "OVERHEAD"), [$tuple([1n, Symbol("overhead_bytes", getattr(policy, "overhead_bytes"))])]);
});
let Step;
Step = $class("Step", [], false, [], ($c) => {
$c.__init__ = $def("__init__", "self run", [], function (self, run) {
let counted;
[self.run, self.shape, self.policy, self.n] = $tuple([run, run.shape, run.policy, run.n]);
self.weight = run.weight;
counted = parameters(getattr(self, "shape"));
self.autocast = $eq(self.policy.precision, "autocast");
self.params = Symbol("n_params", int(getattr(counted, "total")));
self.frozen = $isnot(self.shape.lora_rank, null);
self.trained = ($true(self.frozen) ? trained_symbol(getattr(self, "shape")) : self.params);
self.embedding_matrix = $mul(self.n.vocab, self.n.d_model);
self.weights = [...(function* ($first) { for (const [count, size] of $first) yield $tuple([count, $mul(size, self.weight)]); })(tensors(getattr(self, "shape")))];
self.buffers = [...(function* ($first) { for (const [count, size] of $first) yield $tuple([count, $mul(size, run.gradient)]); })(trained_tensors(getattr(self, "shape")))];
self.whole_block = dict((function* ($first) { for (const kind of $first) yield [kind, block_tensors(run, kind)]; })(run.stack.counts));
self.head = head_tensors(run);
self.shared = shared_tensors(run);
self.materialises_scores = $ne(self.policy.attention_kernel, "fused");
if (($eq(self.policy.attention_kernel, "eager") && !$true(self.run.transformers))) {
$set(self.shared, Component.MASK, [$tuple([1n, $mul($mul(run.queries, run.seq), run.act)])]);
}
});
$c.parameters = $def("parameters", "self", [], function (self) {
let columns, elements, inside, largest, parts, policy, rows, scales, stored;

[inside, policy] = $tuple([matrices(replace(getattr(self, "shape"), {__proto__: $k, lora_rank: null, lora_targets: null})), self.policy]);
elements = Symbol("block_elements", sum((function* ($first) { for (const [[rows, columns], count] of $first) yield $mul($mul(rows, columns), count); })(inside.items())));
stored = [$tuple([1n, $mul(self.params, self.weight)])];
if ($eq(policy.frozen_dtype, "nf4")) {
if ((!$true(self.frozen) || $eq(policy.allocator, "cuda"))) {
throw ValueError("frozen_dtype 'nf4' is counted of matrices beside adapters, without allocator 'cuda'");
}
scales = $add($floordiv($add(elements, 63n), 64n), $mul(4n, $floordiv($sub($add(elements, $mul(64n, 256n)), 1n), $mul(64n, 256n))));
stored = [$tuple([1n, $mul($sub(self.params, elements), self.weight)]), $tuple([1n, $add($floordiv($add(elements, 1n), 2n), scales)])];
[rows, columns] = max(inside, {__proto__: $k, key: ((sides) => $mul($item(sides, 0n), $item(sides, 1n)))});
largest = Symbol("largest_tensor", $mul(rows, columns));
return [Item("parameters", getattr(Group, "PARAMETERS"), stored), temporary("a matrix in bf16", $tuple([1n, $mul(2n, largest)]))];
}
parts = [Item("parameters", getattr(Group, "PARAMETERS"), stored)];
if ($eq(policy.precision, "fp8")) {
parts.append(Item("matrices in fp8, twice", getattr(Group, "PARAMETERS"), [$tuple([2n, elements])]));
}
return parts;
});
$c.hidden = property($def("hidden", "self", [], function (self) {

return $tuple([1n, $mul($mul(self.run.tokens, self.n.d_model), self.run.residual)]);
}));
$c.trained_in = $def("trained_in", "self kind", [], function (self, kind) {
let attention, ffn, prefix, several;

if ($true(self.frozen)) {
return $tuple([adapter_elements(getattr(self, "shape"), 1n, {__proto__: $k, of_ffn: false}), adapter_elements(getattr(self, "shape"), 1n, {__proto__: $k, of_ffn: true})]);
}
[attention, ffn] = block_parameters(getattr(self, "shape"), kind);
several = $gt(len(getattr(self.shape, "ffns")), 1n);
prefix = ($true(several) ? ("" + $format(($is(kind.ffn.experts, null) ? "dense" : "expert"), "") + "_") : "");
return $tuple([Symbol("attention_params", attention), Symbol(("" + $format(prefix, "") + "ffn_params"), ffn)]);
});
$c.gradients = $def("gradients", "self finished newest blocks=", [0n], function (self, finished, newest, blocks) {
let layers, one, whole;

one = Term(0n);
if ($true(newest)) {
one = ($true(self.autocast) ? $add($mul(newest, self.weight), $mul(newest, self.run.act)) : $mul(newest, self.weight));
}
if ($true(self.policy.accumulates)) {
return Gradients($mul(self.trained, self.run.gradient), one, getattr(self, "buffers"));
}
layers = self.shape.num_layers;
whole = [...(function* ($first) { for (const [count, size] of $first) if ($ge(count, layers)) yield $tuple([$floordiv($mul(int(count), blocks), layers), size]); })(self.buffers)];
return Gradients(($true(finished) ? $mul(finished, self.run.gradient) : Term(0n)), one, whole);
});
$c.losses = $def("losses", "self", [], function (self) {
let after, backward, before, chunks, copies, head, head_gradients, in_fp32, logits, loss, loss_gradients, n, newest, none, nothing, of_block, of_head, once, run, scaled, shifted, wide;

[none, n, run] = $tuple([Term(0n), self.n, self.run]);
head = dict((function* ($first) { for (const [one, tensors] of $first) if ($isnot(one, Component.LOSS)) yield [one, tensors]; })(self.head.items()));
before = [...self.saved(getattr(run.stack, "counts")), ...items(getattr(Group, "SAVED"), head)];
after = [...before, ...items(getattr(Group, "SAVED"), dict([[Component.LOSS, $item(self.head, Component.LOSS)]]))];
copies = [];
if (($true(self.autocast) && $eq(self.policy.activation_checkpointing, "full"))) {
[of_block] = (function* ($first) { for (const block of $first) yield $item(block, Component.WEIGHTS_IN_BF16); })(self.whole_block.values());
copies.append(temporary("weights in bf16", ...(function* ($first) { for (const [count, size] of $first) yield $tuple([$mul(n.n_layers, count), size]); })(of_block)));
}
if (($true(self.autocast) && $eq(self.policy.loss, "chunked"))) {
copies.append(temporary("head in bf16", $tuple([1n, $mul(2n, self.embedding_matrix)])));
}
nothing = self.gradients(none, none);
if ($eq(self.policy.loss, "chunked")) {
of_head = ($true(self.frozen) ? Term(0n) : $mul(self.embedding_matrix, self.weight));
scaled = Gradients($add(nothing.finished, of_head), getattr(nothing, "newest"), [...nothing.tensors, $tuple([1n, of_head])]);
chunks = temporary("chunks of logits", ...self._chunks(), ...self._head_sum());
loss = [...after, ...copies, temporary("hidden state", getattr(self, "hidden")), chunks];
backward = [...after, temporary("hidden gradient", getattr(self, "hidden"))];
return [Moment("loss", getattr(PhaseKind, "FORWARD"), nothing, loss), Moment("backward of the loss", getattr(PhaseKind, "BACKWARD"), scaled, backward)];
}
logits = $tuple([1n, $mul($mul(run.tokens, n.vocab), run.act)]);
wide = $mul(4n, $mul(run.tokens, run.loss_vocab));
in_fp32 = temporary("logits in fp32", ...($true(run.narrow) ? [$tuple([1n, wide])] : []));
shifted = ($eq(self.policy.loss, "shifted") ? [temporary("logits in fp32", $tuple([1n, wide]))] : []);
loss_gradients = [...after, ...shifted, temporary("gradients of logits", $tuple([2n, wide]))];
if (($eq(self.policy.allocator, "reserved") && $true(run.narrow))) {
loss_gradients.append(temporary("logits, cached", logits));
}
head_gradients = [...before, temporary("gradients of logits", logits), temporary("hidden gradient", getattr(self, "hidden"))];
newest = self.gradients(none, ($true(self.frozen) ? none : self.embedding_matrix));
once = temporary("logits", logits);
return [Moment("forward", getattr(PhaseKind, "FORWARD"), nothing, [...before, ...copies, once]), Moment("loss", getattr(PhaseKind, "FORWARD"), nothing, [...after, ...copies, ...shifted, once, in_fp32]), Moment("backward of the loss", getattr(PhaseKind, "BACKWARD"), nothing, loss_gradients), Moment("backward of the head", getattr(PhaseKind, "BACKWARD"), newest, head_gradients)];
});
$c._chunks = $def("_chunks", "self", [], function (self) {
let chunk, in_fp32, n, narrow, of_head, products, rows, run;

[run, n] = $tuple([self.run, self.n]);
chunk = min(int(getattr(run, "tokens")), max(1n, $floordiv(self.policy.logits_chunk_bytes, $mul(4n, self.shape.vocab_rows))));
rows = Symbol("chunk_rows", chunk);
[in_fp32, narrow] = $tuple([$tuple([1n, $mul(4n, $mul(rows, n.vocab))]), $tuple([1n, $mul($mul(rows, n.vocab), run.act)])]);
products = [$tuple([1n, $mul($mul(rows, n.d_model), run.act)])];
if (!$true(self.frozen)) {
products.insert(0n, $tuple([1n, $mul($mul(n.vocab, n.d_model), run.act)]));
}
if ($eq(self.policy.loss_kernel, "fused")) {
of_head = ($true(self._head_sum()) ? $slice(products, null, $neg(1n)) : []);
return ($true(self.autocast) ? [narrow, ...products] : [narrow, ...of_head]);
}
return ($true(run.narrow) ? [in_fp32, narrow, ...products] : [in_fp32]);
});
$c._head_sum = $def("_head_sum", "self", [], function (self) {

if (($true(self.frozen) || $ge(int(getattr(self, "weight")), 4n))) {
return [];
}
return [$tuple([1n, $mul($sub(4n, int(getattr(self, "weight"))), self.embedding_matrix)])];
});
$c.blocks = $def("blocks", "self", [], function (self) {
let above, attention, below, bottom, count, done, ffn, finished, kind, moments, n, name, run, saved, shape, sizes, trained, under;

[shape, n, run] = $tuple([self.shape, self.n, self.run]);
attention = temporary("gradients of activations", getattr(self, "hidden"), ...self._attention_gradients());
if ($true(shape.parallel)) {
attention = temporary(getattr(attention, "name"), getattr(self, "hidden"), ...attention.tensors);
}
bottom = ($true(shape.tied_embeddings) ? Term(0n) : self.embedding_matrix);
if ($eq(shape.position, "learned")) {
bottom = $add(bottom, $mul(n.max_seq, n.d_model));
}
trained = dict((function* ($first) { for (const kind of $first) yield [kind, self.trained_in(kind)]; })(run.stack.counts));
sizes = dict((function* ($first) { for (const [kind, [of_attention, of_ffn]] of $first) yield [kind, $add(of_ffn, of_attention)]; })(trained.items()));
above = $sub(self.params, bottom);
if ($true(self.frozen)) {
above = added((function* ($first) { for (const [kind, count] of $first) yield $mul(count, $item(sizes, kind)); })(run.stack.counts.items()));
}
finished = ($true(self.frozen) ? Term(0n) : self.embedding_matrix);
moments = [];
for ([name, kind, below] of run.stack.ends) {
done = $sub($sub(shape.num_layers, 1n), sum((function* ($first) { for (const count of $first) yield int(count); })(below.values())));
if ($true(done)) {
finished = $sub(above, $item(sizes, kind));
for ([under, count] of below.items()) {
finished = ($true(count) ? $sub(finished, $mul(count, $item(sizes, under))) : finished);
}
}
saved = self.saved(below, kind);
ffn = temporary("gradients of activations", getattr(self, "hidden"), self._ffn_gradients(kind));
moments = $add(moments, [Moment(("" + "backward of the " + $format(name, "") + " block, ffn"), getattr(PhaseKind, "BACKWARD"), self.gradients(finished, self._newest(kind, {__proto__: $k, of_ffn: true}), done), [...saved, ...self._ffn_backward(kind), ffn]), Moment(("" + "backward of the " + $format(name, "") + " block, attention"), getattr(PhaseKind, "BACKWARD"), self.gradients($add(finished, $item($item(trained, kind), 1n)), self._newest(kind, {__proto__: $k, of_ffn: false}), done), [...saved, ...self._attention_backward(kind), attention])]);
}
return moments;
});
$c._ffn_gradients = $def("_ffn_gradients", "self kind", [], function (self, kind) {
let each, ffn, m, run, shape;

[shape, run, ffn] = $tuple([self.shape, self.run, kind.ffn]);
each = dict([["relu", 2n], ["gelu_new", 2n], ["relu2", 3n]]).get(getattr(shape, "ffn"), ($true(shape.gated) ? 2n : 1n));
each = max(each, ($in("down", shape.adapted) ? 2n : 1n));
m = FfnDimensions(shape, ffn);
if ($gt($or(ffn.shared_d_ff, () => 0n), $mul(ffn.active, kind.d_ff))) {
return $tuple([each, $mul($mul(run.tokens, m.shared_d_ff), run.act)]);
}
return $tuple([$mul(each, ffn.active), $mul($mul(run.tokens, m.d_ff), run.act)]);
});
$c._newest = $def("_newest", "self kind * of_ffn", [], function (self, kind, of_ffn) {
let halves, n;

n = self.n;
if (!$true(self.frozen)) {
if ($true(of_ffn)) {
return $mul(n.d_model, FfnDimensions(getattr(self, "shape"), getattr(kind, "ffn")).d_ff);
}
return $item(list(attention_matrices(getattr(self, "shape"), getattr(kind, "attention")).values()), $neg(1n));
}
halves = [...(function* ($first) { for (const [name, [into, ]] of $first) if ($eq($in(name, OF_FFN_MATRICES), of_ffn)) yield $mul(rank_of(getattr(self, "shape")), into); })(adapted(getattr(self, "shape")).items())];
return ($true(halves) ? $item(halves, $neg(1n)) : Term(0n));
});
$c._attention_gradients = $def("_attention_gradients", "self", [], function (self) {
let keys_and_values, m, n, of_query, of_value, queries, run;

[run, n] = $tuple([self.run, self.n]);
queries = $mul($mul(run.tokens, $mul(n.n_heads, n.head_dim)), run.act);
if ($eq(self.policy.attention_kernel, "eager")) {
return [$tuple([2n, $mul($mul($mul($mul(run.batch, n.n_heads), run.queries), run.seq), run.act)])];
}
if ($isnot(self.shape.latent, null)) {
m = LatentDimensions(getattr(self.shape, "latent"));
[of_query, of_value] = $tuple([$mul(n.n_heads, $add(m.nope_dim, m.rope_dim)), $mul(n.n_heads, m.value_dim)]);
return [$tuple([2n, $mul($mul(run.tokens, of_query), run.act)]), $tuple([2n, $mul($mul(run.tokens, of_value), run.act)])];
}
if ($eq(self.policy.attention_kernel, "blocks")) {
keys_and_values = $mul($mul(run.tokens, $mul($mul(2n, n.n_kv_heads), n.head_dim)), run.act);
return [$tuple([1n, $add(queries, keys_and_values)]), $tuple([1n, scratch_of_blocks(run)])];
}
return [$tuple([3n, queries]), $tuple([1n, $mul($mul(run.tokens, n.d_model), run.act)])];
});
$c.embedding_backward = $def("embedding_backward", "self * tied", [], function (self, tied) {
let alive, gradients, matrix, newest, others, saved, second;

[matrix, saved] = $tuple([self.embedding_matrix, items(getattr(Group, "SAVED"), getattr(self, "shared"))]);
newest = $mul(matrix, self.weight);
if ($true(tied)) {
second = temporary("second gradient", $tuple([1n, max($item(self.hidden, 1n), newest)]));
[gradients, alive] = $tuple([Gradients($mul(self.params, self.run.gradient), newest, getattr(self, "buffers")), [...saved, second]]);
} else {
others = ($true(self.policy.accumulates) ? self.params : $sub(self.params, matrix));
gradients = Gradients($mul(others, self.run.gradient), newest, getattr(self, "buffers"));
alive = [...saved, temporary("hidden gradient", getattr(self, "hidden"))];
}
return Moment("backward of the embedding", getattr(PhaseKind, "BACKWARD"), gradients, alive);
});
$c.stepping = $def("stepping", "self", [], function (self) {
let alive, gradients, offloaded;

gradients = Gradients($mul(self.trained, self.run.gradient), Term(0n), getattr(self, "buffers"));
offloaded = $eq(self.policy.offload, "optimizer");
alive = temporary("temporaries", ...($true(offloaded) ? [] : step_temporaries(getattr(self, "shape"), getattr(self, "policy"))));
return Moment("optimizer step", getattr(PhaseKind, "OPTIMIZER_STEP"), gradients, [alive]);
});
$c.saved = $def("saved", "self layers block=", [null], function (self, layers, block) {
let shared;

shared = self.shared;
if ($true(self.run.transformers)) {
shared = dict([...shared.items(), [Component.MASK, masks(getattr(self, "run"), layers, block)]]);
}
return items(getattr(Group, "SAVED"), dict([...shared.items(), ...saved_by_layers(getattr(self, "run"), layers).items()]));
});
$c._ffn_backward = $def("_ffn_backward", "self kind", [], function (self, kind) {
let components, selective;

selective = $eq(self.policy.activation_checkpointing, "selective");
components = ($true(selective) ? saved_by_block(getattr(self, "run"), kind) : $item(self.whole_block, kind));
return [...items(getattr(Group, "THIS_BLOCK"), components), ...self._recomputed_input(kind)];
});
$c._attention_backward = $def("_attention_backward", "self kind", [], function (self, kind) {
let again, components;

components = dict($item(self.whole_block, kind));
if ($eq(self.policy.activation_checkpointing, "selective")) {
again = $item(components, Component.ATTENTION_WEIGHTS);
components = dict([...saved_by_block(getattr(self, "run"), kind).items(), [Component.ATTENTION_WEIGHTS, again]]);
$set(components, Component.QKV_COPIES, copies_of_heads(getattr(self, "run"), kind));
}
components = dict((function* ($first) { for (const [one, tensors] of $first) if ($notin(one, OF_FFN)) yield [one, tensors]; })(components.items()));
$set(components, Component.NORMS, [...(function* ($first) { for (const [count, size] of $first) yield $tuple([$floordiv(count, 2n), size]); })($item(components, Component.NORMS))]);
if (($true(self.materialises_scores) && $in(Component.ATTENTION_OUTPUT, components))) {
components.$delete(Component.ATTENTION_OUTPUT);
}
return [...items(getattr(Group, "THIS_BLOCK"), components), ...self._recomputed_input(kind)];
});
$c._recomputed_input = $def("_recomputed_input", "self kind", [], function (self, kind) {
let checkpointing, kernel, run, saved, there;

checkpointing = self.policy.activation_checkpointing;
if ($eq(checkpointing, "operators")) {
saved = saved_by_block(getattr(self, "run"), kind);
return items(getattr(Group, "THIS_BLOCK"), dict([[Component.MATMUL_OUTPUTS, $slice($item(saved, Component.MATMUL_OUTPUTS), null, 2n)]]));
}
if ($ne(checkpointing, "full")) {
return [];
}
[run, kernel] = $tuple([self.run, self.policy.norm_kernel]);
if ($eq(self.shape.norm, "none")) {
there = $eq(int(getattr(run, "act")), int(getattr(run, "residual")));
} else {
if ($eq(self.shape.norm, "layernorm")) {
there = $or(self.shape.norm_weights, () => $eq(int(getattr(run, "residual")), 4n));
} else {
there = $or($eq(kernel, "fused"), () => $eq(int(getattr(run, "residual")), 4n));
}
}
if ($true(there)) {
return [];
}
return [Item("this block: input", getattr(Group, "THIS_BLOCK"), $item(saved_by_block(run, kind), Component.BLOCK_INPUTS))];
});
});
return {TrainingMemory, Gradients, Moment, training_memory, training_peak, _alive, overhead, Step};
};
$modules["accounting.policy"] = () => {
const booleans = $load("accounting.checks").booleans;
const choose = $load("accounting.checks").choose;
const dataclass = $load("dataclasses").dataclass;
const positive = $load("accounting.checks").positive;
const whole = $load("accounting.checks").whole;
let LOGITS_CHUNK_BYTES;
LOGITS_CHUNK_BYTES = $shl(512n, 20n);
let Precision;
Precision = $class("Precision", [], true, [["weights"], ["residual"], ["activations"], ["master_weights"]], ($c) => {

});
let PRECISIONS;
PRECISIONS = dict([["fp32", Precision(4n, 4n, 4n, false)], ["bf16", Precision(2n, 2n, 2n, true)], ["pure_bf16", Precision(2n, 2n, 2n, false)], ["autocast", Precision(4n, 4n, 2n, false)], ["fp8", Precision(2n, 2n, 2n, true)]]);
let SETTINGS;
SETTINGS = dict([["precision", tuple(PRECISIONS)], ["optimizer", $tuple(["adamw", "adamw8bit", "sgd", "muon"])], ["optimizer_step", $tuple(["fused", "foreach", "loop"])], ["attention_kernel", $tuple(["fused", "eager", "blocks"])], ["norm_kernel", $tuple(["fused", "composite"])], ["gate_kernel", $tuple(["composite", "fused"])], ["activation_checkpointing", $tuple(["none", "selective", "operators", "full"])], ["loss", $tuple(["plain", "shifted", "chunked"])], ["loss_kernel", $tuple(["operators", "fused"])], ["allocator", $tuple(["exact", "cuda", "reserved"])], ["gradient_dtype", $tuple(["weights", "fp32"])], ["moment_dtype", $tuple(["fp32", "bf16"])], ["offload", $tuple(["none", "optimizer", "activations"])], ["frozen_dtype", $tuple(["weights", "nf4"])], ["model_code", $tuple(["lm", "transformers"])]]);
let Policy;
Policy = $class("Policy", [], true, [["precision", "fp32"], ["optimizer", "adamw"], ["optimizer_step", "fused"], ["attention_kernel", "fused"], ["norm_kernel", "fused"], ["gate_kernel", "composite"], ["activation_checkpointing", "none"], ["loss", "plain"], ["loss_kernel", "operators"], ["logits_chunk_bytes", LOGITS_CHUNK_BYTES], ["gradient_accumulation", false], ["allocator", "exact"], ["gradient_dtype", "weights"], ["overhead_bytes", 0n], ["moment_dtype", "fp32"], ["offload", "none"], ["frozen_dtype", "weights"], ["model_code", "lm"]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let among, counted, name, value;
for ([name, among] of SETTINGS.items()) {
choose(name, getattr(self, name), among);
}
counted = $and($in(self.optimizer, $tuple(["adamw", "sgd"])), () => $eq(self.optimizer_step, "fused"));
for ([name, value] of $tuple([$tuple(["moment_dtype", "bf16"]), $tuple(["offload", "optimizer"])])) {
if (($eq(getattr(self, name), value) && !$true(counted))) {
throw ValueError(("" + $format(name, "") + " " + $format(repr(value), "") + " is counted of a fused step of adamw or sgd: use one of them"));
}
}
if (($eq(self.frozen_dtype, "nf4") && $notin(self.precision, $tuple(["bf16", "pure_bf16", "autocast"])))) {
throw ValueError(("" + "frozen_dtype 'nf4' is not counted with precision " + $format(repr(self.precision), "") + ": use 'bf16'"));
}
if (($eq(self.offload, "activations") && $ne(self.activation_checkpointing, "full"))) {
throw ValueError("offload 'activations' moves what activation_checkpointing 'full' saves: set that too");
}
positive("logits_chunk_bytes", getattr(self, "logits_chunk_bytes"));
whole("overhead_bytes", getattr(self, "overhead_bytes"));
booleans(self, $tuple(["gradient_accumulation"]));
});
$c.bytes = property($def("bytes", "self", [], function (self) {

return $item(PRECISIONS, self.precision);
}));
$c.moment_bytes = property($def("moment_bytes", "self", [], function (self) {

return ($eq(self.moment_dtype, "bf16") ? 2n : 4n);
}));
$c.gradient_bytes = property($def("gradient_bytes", "self", [], function (self) {

return ($eq(self.gradient_dtype, "fp32") ? 4n : self.bytes.weights);
}));
$c.accumulates = property($def("accumulates", "self", [], function (self) {

return $or(self.gradient_accumulation, () => $eq(self.gradient_dtype, "fp32"));
}));
$c.description = property($def("description", "self", [], function (self) {

return ("" + $format(self.precision, "") + ", " + $format(self.attention_kernel, "") + " attention, " + $format(self.norm_kernel, "") + " norms, " + $format(self.loss, "") + " loss, activation checkpointing " + $format(self.activation_checkpointing, ""));
}));
});
let DEFAULT;
DEFAULT = Policy();
return {LOGITS_CHUNK_BYTES, Precision, PRECISIONS, SETTINGS, Policy, DEFAULT};
};
$modules["accounting.memory.allocator"] = () => {
let BLOCK;
BLOCK = 512n;
let OWN_SEGMENT;
OWN_SEGMENT = $shl(10n, 20n);
let SEGMENT_MULTIPLE;
SEGMENT_MULTIPLE = $shl(2n, 20n);
let KEPT_REMAINDER;
KEPT_REMAINDER = $shl(1n, 20n);
let block;
block = $def("block", "size", [], function (size) {
let rounded, segment;

rounded = $mul($neg($floordiv($neg(size), BLOCK)), BLOCK);
if ($lt(rounded, OWN_SEGMENT)) {
return rounded;
}
segment = $mul($neg($floordiv($neg(rounded), SEGMENT_MULTIPLE)), SEGMENT_MULTIPLE);
return ($le($sub(segment, rounded), KEPT_REMAINDER) ? segment : rounded);
});
let waste;
waste = $def("waste", "tensors", [], function (tensors) {

return sum((function* ($first) { for (const [count, size] of $first) yield $mul(int(count), $sub(block(int(size)), int(size))); })(tensors));
});
return {BLOCK, OWN_SEGMENT, SEGMENT_MULTIPLE, KEPT_REMAINDER, block, waste};
};
$modules["accounting.planning.inference"] = () => {
const BITS = $load("accounting.memory.inference").BITS;
const Bytes = $load("accounting.units").Bytes;
const Device = $load("accounting.hardware.devices").Device;
const FLOPs = $load("accounting.units").FLOPs;
const FORMATS = $load("accounting.memory.inference").FORMATS;
const Layout = $load("accounting.cluster.layout").Layout;
const Seconds = $load("accounting.units").Seconds;
const TransformerShape = $load("accounting.shape").TransformerShape;
const choose = $load("accounting.checks").choose;
const dataclass = $load("dataclasses").dataclass;
const decode_flops = $load("accounting.counting.flops").decode_flops;
const inference_memory = $load("accounting.memory.inference").inference_memory;
const instance = $load("accounting.checks").instance;
const kv_cache = $load("accounting.memory.inference").kv_cache;
const largest = $load("accounting.planning.fitting").largest;
const pairwise = $load("itertools").pairwise;
const places = $load("accounting.cluster.layout").places;
const positive = $load("accounting.checks").positive;
const prefill_flops = $load("accounting.counting.flops").prefill_flops;
const replace = $load("dataclasses").replace;
const shard = $load("accounting.cluster.layout").shard;
const weight_bytes = $load("accounting.memory.inference").weight_bytes;
const weights_read = $load("accounting.memory.inference").weights_read;
const whole = $load("accounting.checks").whole;
let Storage;
Storage = $class("Storage", [], true, [["weights", "bf16"], ["cache", "bf16"], ["devices", 1n], ["page", 0n], ["hybrid", false]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
choose("weights", getattr(self, "weights"), FORMATS);
choose("cache", getattr(self, "cache"), BITS);
positive("devices", getattr(self, "devices"));
});
});
let PLAIN;
PLAIN = Storage();
let VISIBLE;
VISIBLE = $div($mul(0.99, $pow(2n, 30n)), $pow(10n, 9n));
let SAMPLING_BYTES;
SAMPLING_BYTES = 38n;
let NON_TORCH;
NON_TORCH = $tuple([140000000n, 590000000n]);
let PADDED;
PADDED = 256n;
let REACHED;
REACHED = dict([["one text", $tuple([0.26, 0.89])], ["tensor parallel", $tuple([0.22, 0.64])], ["batched", $tuple([0.07, 0.28])], ["prefill", $tuple([0.13, 0.88])]]);
let Engine;
Engine = $class("Engine", [], true, [["utilization", 0.9], ["chunk", 8192n], ["sequences", 1024n], ["overhead", null]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let name;
if (($true(isinstance(getattr(self, "utilization"), bool)) || !($lt(0n, self.utilization) && $le(self.utilization, 1n)))) {
throw ValueError(("" + "expected utilization above 0 and at most 1, got " + $format(repr(self.utilization), "")));
}
for (name of $tuple(["chunk", "sequences"])) {
positive(name, getattr(self, name));
}
if ($isnot(self.overhead, null)) {
whole("overhead", getattr(self, "overhead"));
}
});
});
let engine_for;
engine_for = $def("engine_for", "device", [], function (device) {
let large;

large = $and($ge(float(getattr(device, "memory")), 70000000000.0), () => !$true(device.name.startswith("a100")));
return ($true(large) ? Engine() : Engine({__proto__: $k, chunk: 2048n, sequences: 256n}));
});
let free_cache;
free_cache = $def("free_cache", "shape device engine * storage=", [PLAIN], function (shape, device, engine, storage) {
let overhead, taken, usable;

if ($eq(storage.weights, "mxfp4")) {
shape = _padded(shape);
}
usable = int($mul($mul(int(getattr(device, "memory")), VISIBLE), engine.utilization));
overhead = ($is(engine.overhead, null) ? $item(NON_TORCH, $gt(storage.devices, 1n)) : engine.overhead);
taken = $def("taken", "mine", [], function (mine) {
let residual, sampling, weights, width;
width = max($mul($add(mine.num_heads, $mul(2n, mine.kv_heads)), mine.head_width), ...(function* ($first) { for (const one of $first) yield $mul($mul(mine.matrices_of_ffn, one.active), $or(one.d_ff, () => 0n)); })(mine.ffns));
residual = $mul($mul($mul(2n, 2n), engine.chunk), mine.d_model);
sampling = $mul($mul(SAMPLING_BYTES, engine.sequences), shape.vocab_rows);
weights = int(getattr(weight_bytes(mine, {__proto__: $k, weights: storage.weights}), "total"));
return $add($add(weights, residual), max($mul($mul(2n, engine.chunk), width), sampling));
});
return $sub($sub(usable, overhead), max(map(taken, _shares(shape, getattr(storage, "devices")))));
});
let _padded;
_padded = $def("_padded", "shape", [], function (shape) {
let layer;

layer = $def("layer", "one", [], function (one) {
if (($is(one.ffn, null) || $is(one.ffn.experts, null) || $is(one.ffn.d_ff, null))) {
return one;
}
return replace(one, {__proto__: $k, ffn: replace(getattr(one, "ffn"), {__proto__: $k, d_ff: $mul($neg($floordiv($neg(one.ffn.d_ff), PADDED)), PADDED)})});
});
return replace(shape, {__proto__: $k, d_ff: $mul($neg($floordiv($neg(shape.d_ff), PADDED)), PADDED), leading: tuple(map(layer, getattr(shape, "leading"))), layers: tuple(map(layer, getattr(shape, "layers")))});
});
let reached;
reached = $def("reached", "batch_size devices", [], function (batch_size, devices) {

return $item(REACHED, ($gt(batch_size, 1n) ? "batched" : ($eq(devices, 1n) ? "one text" : "tensor parallel")));
});
let Roofline;
Roofline = $class("Roofline", [], true, [["flops"], ["moved"], ["sent"], ["arithmetic"], ["traffic"]], ($c) => {
$c.seconds = property($def("seconds", "self", [], function (self) {
return max(getattr(self, "arithmetic"), getattr(self, "traffic"));
}));
$c.bound = property($def("bound", "self", [], function (self) {
return ($ge(self.arithmetic, self.traffic) ? "arithmetic" : "bandwidth");
}));
});
let Generation;
Generation = $class("Generation", [], true, [["prefill"], ["first_step"], ["last_step"], ["decode_seconds"], ["prompt"], ["output"], ["batch_size"], ["devices"]], ($c) => {
$c.seconds = property($def("seconds", "self", [], function (self) {
return $add(self.prefill.seconds, self.decode_seconds);
}));
$c.tokens_per_second = property($def("tokens_per_second", "self", [], function (self) {

return $div($mul(self.batch_size, $sub(self.output, 1n)), float(getattr(self, "decode_seconds")));
}));
$c.cost_per_million_prompt_tokens = $def("cost_per_million_prompt_tokens", "self price", [], function (self, price) {

return self._cost(price, getattr(self.prefill, "seconds"), getattr(self, "prompt"));
});
$c.cost_per_million_output_tokens = $def("cost_per_million_output_tokens", "self price", [], function (self, price) {

return self._cost(price, getattr(self, "decode_seconds"), getattr(self, "output"));
});
$c._cost = $def("_cost", "self price seconds tokens", [], function (self, price, seconds, tokens) {
if (!($le(0n, price) && $lt(price, float("inf")))) {
throw ValueError(("" + "price must be money for one device and hour, and " + $format(repr(price), "") + " is not: leave it out if unknown"));
}
return $div($mul($div($mul($mul(price, self.devices), float(seconds)), 3600n), 1000000.0), $mul(self.batch_size, tokens));
});
});
let prefill_time;
prefill_time = $def("prefill_time", "shape device prompt= batch_size= * storage=", [null, 1n, PLAIN], function (shape, device, prompt, batch_size, storage) {

return _roofline(shape, device, storage, prompt, batch_size, {__proto__: $k, prefill: true});
});
let decode_time;
decode_time = $def("decode_time", "shape device context= batch_size= * storage=", [null, 1n, PLAIN], function (shape, device, context, batch_size, storage) {

return _roofline(shape, device, storage, context, batch_size, {__proto__: $k, prefill: false});
});
let generation_time;
generation_time = $def("generation_time", "shape device prompt output batch_size= * storage=", [1n, PLAIN], function (shape, device, prompt, output, batch_size, storage) {
let bends, edges, first, kind, last, prefill, seconds, step, steps, window;

positive("prompt", prompt);
if ($lt(positive("output", output), 2n)) {
throw ValueError(("" + "output must be at least 2 tokens, the first comes of the prefill, and " + $format(output, "") + " is not"));
}
[first, last] = $tuple([$add(prompt, 1n), $sub($add(prompt, output), 1n)]);
step = $def("step", "context", [], function (context) {
return decode_time(shape, device, context, batch_size, {__proto__: $k, storage: storage});
});
bends = set();
for (kind of shape.counts) {
if ($true((window = kind.attention.window))) {
steps = ($true(kind.attention.chunked) ? range($mul($floordiv(first, window), window), last, window) : $tuple([window]));
bends = $union(bends, set((function* ($first) { for (const at of $first) if (($le(first, at) && $lt(at, last))) yield at; })(steps)));
bends = $union(bends, set((function* ($first) { for (const at of $first) if (($true(kind.attention.chunked) && ($le(first, $add(at, 1n)) && $lt($add(at, 1n), last)))) yield $add(at, 1n); })(steps)));
}
}
edges = [$sub(first, 1n), ...sorted(bends), last];
seconds = sum((function* ($first) { for (const [low, high] of $first) yield _steps(step, $add(low, 1n), high); })(pairwise(edges)));
prefill = prefill_time(shape, device, prompt, batch_size, {__proto__: $k, storage: storage});
return Generation(prefill, step(first), step(last), Seconds(seconds), prompt, output, batch_size, getattr(storage, "devices"));
});
let _steps;
_steps = $def("_steps", "step first last", [], function (step, first, last) {
let half, high, low;

[low, high] = $tuple([step(first), step(last)]);
if (($eq(low.bound, high.bound) || $lt($sub(last, first), 2n))) {
return $div($mul($add($sub(last, first), 1n), $add(float(getattr(low, "seconds")), float(getattr(high, "seconds")))), 2n);
}
half = $floordiv($add(first, last), 2n);
return $add(_steps(step, first, half), _steps(step, $add(half, 1n), last));
});
let max_sequences;
max_sequences = $def("max_sequences", "shape device context= * storage= engine=", [null, PLAIN, null], function (shape, device, context, storage, engine) {
let fits, length;

instance("shape", shape, TransformerShape, "SHAPES");
instance("device", device, Device, "DEVICES");
fits = _fits(shape, device, storage, engine);
length = shape.sequence(context);
return largest(((batch) => $and($or($is(engine, null), () => $le(batch, engine.sequences)), () => fits(batch, length))));
});
let longest_generation;
longest_generation = $def("longest_generation", "shape device batch_size= * storage= engine=", [1n, PLAIN, null], function (shape, device, batch_size, storage, engine) {
let fits, most;

most = ($eq(shape.position, "learned") ? shape.context_length : $shl(1n, 40n));
fits = _fits(shape, device, storage, engine);
return largest(((context) => $and($le(context, most), () => fits(batch_size, context))));
});
let _fits;
_fits = $def("_fits", "shape device storage engine", [], function (shape, device, storage, engine) {
let fits, free, whole;

if ($is(engine, null)) {
whole = int(getattr(device, "memory"));
return (() => $le(int(device_inference_memory(shape, ...sizes, {__proto__: $k, storage: storage})), whole));
}
free = free_cache(shape, device, engine, {__proto__: $k, storage: storage});
fits = $def("fits", "batch context", [], function (batch, context) {
let cached;
cached = (function* ($first) { for (const mine of $first) yield kv_cache(mine, batch, context, {__proto__: $k, dtype: storage.cache, page: storage.page, hybrid: storage.hybrid}); })(_shares(shape, getattr(storage, "devices")));
return $le(max((function* ($first) { for (const one of $first) yield int(getattr(one, "total")); })(cached)), free);
});
return fits;
});
let device_inference_memory;
device_inference_memory = $def("device_inference_memory", "shape batch_size= context= * storage=", [1n, null, PLAIN], function (shape, batch_size, context, storage) {
let length, shares, stored;

length = shape.sequence(context);
stored = dict([["weights", storage.weights], ["cache", storage.cache]]);
stored = $union(stored, dict([["page", storage.page], ["hybrid", storage.hybrid]]));
shares = _shares(shape, getattr(storage, "devices"));
return max((function* ($first) { for (const mine of $first) yield inference_memory(mine, batch_size, length, {__proto__: $k, ...$named(stored)}); })(shares), {__proto__: $k, key: int});
});
let _shares;
_shares = $def("_shares", "shape devices", [], function (shape, devices) {
let layout;

layout = Layout({__proto__: $k, tensor: devices});
return ($gt(devices, 1n) ? set((function* ($first) { for (const place of $first) yield shard(shape, layout, place); })(places(layout))) : set([shape]));
});
let _roofline;
_roofline = $def("_roofline", "shape device storage context batch_size * prefill", [], function (shape, device, storage, context, batch_size, prefill) {
let bandwidth, dtype, flops, formats, length, moved, of, peak, ring, sent, shares, tokens;
instance("shape", shape, TransformerShape, "SHAPES");
instance("device", device, Device, "DEVICES");
length = shape.sequence(context);
tokens = $mul(positive("batch_size", batch_size), ($true(prefill) ? length : 1n));
formats = ($in(storage.weights, $tuple(["fp32", "fp16", "fp8"])) ? $tuple([storage.weights]) : $tuple(["bf16", "fp16", "fp32"]));
dtype = next((function* ($first) { for (const one of $first) if ($in(one, device.peaks)) yield one; })($tuple([...formats, "fp32", "bf16", "fp16"])), $item(formats, 0n));
[peak, bandwidth] = $tuple([device.peak(dtype), device.known_bandwidth]);
of = $def("of", "mine", [], function (mine) {
let cache, flops, read;
flops = ($true(prefill) ? prefill_flops(mine, length, batch_size) : decode_flops(mine, length, batch_size));
read = weights_read(mine, tokens, {__proto__: $k, weights: storage.weights});
cache = kv_cache(mine, batch_size, length, {__proto__: $k, dtype: storage.cache, read: !$true(prefill)});
return $tuple([FLOPs(int(getattr(flops, "total"))), Bytes($add(int(getattr(read, "total")), int(getattr(cache, "total"))))]);
});
sent = Bytes(0n);
if ($gt(storage.devices, 1n)) {
ring = $mul($mul(2n, $sub(storage.devices, 1n)), $neg($floordiv($mul($neg(tokens), shape.d_model), storage.devices)));
sent = Bytes($mul($mul($add($mul(2n, shape.num_layers), 1n), ring), ($eq(storage.weights, "fp32") ? 4n : 2n)));
}
shares = [...(function* ($first) { for (const mine of $first) yield of(mine); })(_shares(shape, getattr(storage, "devices")))];
[flops, moved] = max(shares, {__proto__: $k, key: ((one) => max(float($div($item(one, 0n), peak)), float($div($item(one, 1n), bandwidth))))});
return Roofline(flops, moved, sent, Seconds($div(flops, peak)), Seconds($div(moved, bandwidth)));
});
return {Storage, PLAIN, VISIBLE, SAMPLING_BYTES, NON_TORCH, PADDED, REACHED, Engine, engine_for, free_cache, _padded, reached, Roofline, Generation, prefill_time, decode_time, generation_time, _steps, max_sequences, longest_generation, _fits, device_inference_memory, _shares, _roofline};
};
$modules["accounting.memory.inference"] = () => {
const Bytes = $load("accounting.units").Bytes;
const Dimensions = $load("accounting.counting.dimensions").Dimensions;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const LatentAttention = $load("accounting.layer").LatentAttention;
const LatentDimensions = $load("accounting.counting.dimensions").LatentDimensions;
const Mixer = $load("accounting.layer").Mixer;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const TransformerShape = $load("accounting.shape").TransformerShape;
const adapter_elements = $load("accounting.counting.adapters").adapter_elements;
const added = $load("accounting.formula").added;
const attention_groups = $load("accounting.counting.layers").attention_groups;
const breakdown = $load("accounting.breakdown").breakdown;
const cached = $load("accounting.counting.flops").cached;
const choose = $load("accounting.checks").choose;
const constant = $load("accounting.formula").constant;
const dataclass = $load("dataclasses").dataclass;
const expert_elements = $load("accounting.counting.parameters").expert_elements;
const expert_matrices = $load("accounting.counting.parameters").expert_matrices;
const instance = $load("accounting.checks").instance;
const parameters = $load("accounting.counting.parameters").parameters;
const positive = $load("accounting.checks").positive;
const whole = $load("accounting.checks").whole;
const windows = $load("accounting.counting.flops").windows;
let BITS;
BITS = dict([["fp32", 32n], ["bf16", 16n], ["fp16", 16n], ["fp8", 8n], ["int8", 8n], ["int4", 4n]]);
let Format;
Format = $class("Format", [], true, [["bits"], ["group", 0n], ["scale_bits", 0n], ["stores", "all"]], ($c) => {

});
let FORMATS;
FORMATS = dict([["fp32", Format(32n)], ["bf16", Format(16n)], ["fp16", Format(16n)], ["fp8", Format(8n, $mul(128n, 128n), 32n, "blocks")], ["int8", Format(8n, 128n, 16n, "blocks")], ["int4", Format(4n, 128n, 16n, "blocks")], ["mxfp4", Format(4n, 32n, 8n, "experts")]]);
let OUTSIDE;
OUTSIDE = $tuple(["embedding", "positions", "value embeddings", "norms", "head", "adapters"]);
let kv_cache;
kv_cache = $def("kv_cache", "shape batch_size= context= * dtype= page= hybrid= read=", [1n, null, "bf16", 0n, false, false], function (shape, batch_size, context, dtype, page, hybrid, read) {
let attention, batch, keys, latents, layers, m, mixer, n, positions, seen, states, stored, terms, window, words;

instance("shape", shape, TransformerShape, "SHAPES");
choose("dtype", dtype, BITS);
[batch, seen] = $tuple([Symbol("batch", positive("batch_size", batch_size)), Symbol("context", shape.sequence(context))]);
if ($true(whole("page", page))) {
seen = $mul($floordiv($add(seen, $sub(page, 1n)), page), page);
} else {
if ($true(hybrid)) {
throw ValueError("hybrid needs pages, and page is 0: give a page");
}
}
n = Dimensions(shape);
[keys, latents, states] = $tuple([[], [], []]);
for ([attention, layers] of windows(shape).items()) {
if ($true(isinstance(attention, LatentAttention))) {
m = LatentDimensions(attention);
latents.append($mul($mul(batch, $add(m.kv_rank, m.rope_dim)), $mul(layers, seen)));
if ($isnot(attention.indexer, null)) {
latents.append($mul($mul(batch, m.index_dim), $mul(layers, seen)));
}
} else {
if ((!$true(attention.reuses) && !$true(isinstance(attention, Mixer)))) {
positions = seen;
if (($isnot(attention.window, null) && ($true(hybrid) || !$true(page)))) {
window = Symbol("window", getattr(attention, "window"));
if ($true(page)) {
window = $mul($add($floordiv($add(window, $sub(page, 2n)), page), 1n), page);
}
positions = ($true(read) ? cached(attention, seen) : min(seen, window));
}
keys.append($mul(layers, positions));
}
}
}
for ([mixer, layers] of attention_groups(shape).items()) {
if (($true(isinstance(mixer, Mixer)) && ($true(mixer.state) || $true(mixer.newest)))) {
states.append($mul($mul(batch, layers), $add($mul(4n, constant(getattr(mixer, "state"))), $floordiv($mul(mixer.newest, $item(BITS, dtype)), 8n))));
}
}
stored = ($true(keys) ? $floordiv($mul($mul($mul($mul(batch, n.n_kv_heads), n.head_dim), added(keys)), $item(BITS, dtype)), 8n) : Term(0n));
terms = dict([["keys", stored], ["values", stored]]);
if ($true(latents)) {
$set(terms, "keys", added([...($true(keys) ? [stored] : []), $floordiv($mul(added(latents), $item(BITS, dtype)), 8n)]));
}
if ($true(states)) {
$set(terms, "states", added(states));
}
words = ($true(page) ? ("" + "pages of " + $format(page, "") + " positions") : "nothing padded");
if (($true(page) && $true(any((function* ($first) { for (const attention of $first) yield attention.window; })(windows(shape)))))) {
words = $add(words, ($true(hybrid) ? ", of windows those that they touch" : " in every layer, those with a window included"));
}
return breakdown("KV cache", Bytes, terms, ("" + $format(dtype, "") + ", " + $format($mul("latents of keys and values, ", bool(latents)), "") + $format(words, "")));
});
let weight_bytes;
weight_bytes = $def("weight_bytes", "shape * weights=", ["bf16"], function (shape, weights) {
let counted, experts, inside;

instance("shape", shape, TransformerShape, "SHAPES");
counted = parameters(shape);
inside = $add($add(int($item(counted, "attention")), int($item(counted, "ffn"))), int($item(counted, "router")));
experts = sum((function* ($first) { for (const [ffn, count] of $first) if ($true(ffn.experts)) yield $mul($mul(count, ffn.held), expert_matrices(shape, ffn)); })(shape.ffns.items()));
return breakdown("weights", Bytes, dict([..._block_bytes(inside, experts, weights).items(), ...dict((function* ($first) { for (const name of $first) if ($in(name, counted)) yield [name, $mul(int($item(counted, name)), _width(weights))]; })(OUTSIDE)).items()]), _stored(weights));
});
let weights_read;
weights_read = $def("weights_read", "shape tokens * weights=", ["bf16"], function (shape, tokens, weights) {
let count, counted, experts, ffn, inside, layers, more, n, positions, read, rows, unread, width;

counted = parameters(shape);
positive("tokens", tokens);
experts = 0n;unread = experts;
for ([ffn, count] of shape.ffns.items()) {
if ($isnot(ffn.experts, null)) {
read = min(getattr(ffn, "held"), $mul(ffn.active, tokens));
experts = $add(experts, $mul($mul(count, read), expert_matrices(shape, ffn)));
unread = $add(unread, $mul($mul(count, $sub(ffn.held, read)), expert_elements(shape, ffn)));
}
}
inside = $sub($add($add(int($item(counted, "attention")), int($item(counted, "ffn"))), int($item(counted, "router"))), unread);
[width, rows] = $tuple([_width(weights), min(tokens, getattr(shape, "vocab_rows"))]);
positions = ($eq(shape.position, "learned") ? $mul(min(tokens, getattr(shape, "context_length")), shape.d_model) : 0n);
[n, more] = $tuple([Dimensions(shape), dict([])]);
if ($true(shape.value_embeddings)) {
layers = Symbol("value_layers", getattr(shape, "value_embeddings"));
$set(more, "value embeddings", $mul($mul($mul(layers, n.n_kv_heads), $add($mul(rows, n.head_dim), n.d_model)), width));
}
if ($isnot(shape.lora_rank, null)) {
[ffn] = shape.ffns;
$set(more, "adapters", $mul($mul(n.n_layers, adapter_elements(shape, min(getattr(ffn, "held"), $mul(ffn.active, tokens)))), width));
}
return breakdown("weights read", Bytes, dict([..._block_bytes(inside, experts, weights).items(), ["embedding", ($true(shape.tied_embeddings) ? 0n : $mul($mul(rows, n.d_model), width))], ["positions", $mul(positions, width)], ["norms", $mul(int($item(counted, "norms")), width)], ["head", $mul($mul(n.vocab, n.d_model), width)], ...more.items()]), _stored(weights));
});
let _block_bytes;
_block_bytes = $def("_block_bytes", "elements experts weights", [], function (elements, experts, weights) {
let form, quantised, rest, scales;

form = $item(FORMATS, choose("weights", weights, FORMATS));
quantised = Symbol("block_elements", elements);
rest = 0n;
if ($eq(form.stores, "experts")) {
if (!$true(experts)) {
throw ValueError(("" + "weights " + $format(repr(weights), "") + " are those of experts, and this model has none: use another format"));
}
[quantised, rest] = $tuple([Symbol("expert_elements", experts), $mul(2n, Symbol("other_elements", $sub(elements, experts)))]);
}
if (($ge(form.bits, 8n) && !$true(form.group))) {
return dict([["blocks", $mul(quantised, $floordiv(form.bits, 8n))], ["scales", Term(0n)]]);
}
scales = $floordiv($add(quantised, $sub(form.group, 1n)), form.group);
return dict([["blocks", $add($floordiv($add($mul(quantised, form.bits), 7n), 8n), rest)], ["scales", $mul($floordiv(form.scale_bits, 8n), scales)]]);
});
let _width;
_width = $def("_width", "weights", [], function (weights) {
let form;

form = $item(FORMATS, choose("weights", weights, FORMATS));
return ($eq(form.stores, "all") ? $floordiv(form.bits, 8n) : 2n);
});
let _stored;
_stored = $def("_stored", "weights", [], function (weights) {
let form;
form = $item(FORMATS, weights);
if ($eq(form.stores, "all")) {
return ("" + $format(weights, "") + " throughout");
}
return ("" + $format(weights, "") + " for the " + $format(form.stores, "") + ", " + $format(form.scale_bits, "") + "-bit scales for groups of " + $format(form.group, ("" + ",")) + ", bf16 elsewhere");
});
let inference_memory;
inference_memory = $def("inference_memory", "shape batch_size= context= * weights= cache= page= hybrid=", [1n, null, "bf16", "bf16", 0n, false], function (shape, batch_size, context, weights, cache, page, hybrid) {
let batch, cached, hidden, keys_and_values, n, stored, width;

[n, batch] = $tuple([Dimensions(shape), Symbol("batch", positive("batch_size", batch_size))]);
stored = dict(getattr(weight_bytes(shape, {__proto__: $k, weights: weights}), "terms"));
keys_and_values = kv_cache(shape, batch_size, context, {__proto__: $k, dtype: cache, page: page, hybrid: hybrid});
cached = sum((function* ($first) { for (const [, term] of $first) yield term; })(keys_and_values.terms));
width = $floordiv($item(BITS, ($eq(weights, "fp32") ? "fp32" : "bf16")), 8n);
hidden = max($mul($add(n.n_heads, $mul(2n, n.n_kv_heads)), n.head_dim), ...(function* ($first) { for (const one of $first) yield $mul($mul(shape.matrices_of_ffn, one.active), FfnDimensions(shape, one).d_ff); })(shape.ffns));
return breakdown("inference memory", Bytes, dict([...stored.items(), ["kv cache", cached], ["activations", $mul($mul(batch, $add($mul(2n, n.d_model), hidden)), width)], ["logits", $mul($mul(batch, n.vocab), 4n)]]), ("" + "weights " + $format(weights, "") + ", cache " + $format(cache, "") + " at " + $format(shape.sequence(context), "") + " positions; a decoding step holds the residual, its norm, the wider of the two sublayers, and logits in fp32; no allocator's slack"));
});
return {BITS, Format, FORMATS, OUTSIDE, kv_cache, weight_bytes, weights_read, _block_bytes, _width, _stored, inference_memory};
};
$modules["accounting.counting.flops"] = () => {
const Attention = $load("accounting.layer").Attention;
const Dimensions = $load("accounting.counting.dimensions").Dimensions;
const FLOPs = $load("accounting.units").FLOPs;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const Indexer = $load("accounting.layer").Indexer;
const LatentAttention = $load("accounting.layer").LatentAttention;
const LatentDimensions = $load("accounting.counting.dimensions").LatentDimensions;
const Mixer = $load("accounting.layer").Mixer;
const Symbol = $load("accounting.formula").Symbol;
const TransformerShape = $load("accounting.shape").TransformerShape;
const adapter_elements = $load("accounting.counting.adapters").adapter_elements;
const added = $load("accounting.formula").added;
const attention_groups = $load("accounting.counting.layers").attention_groups;
const attention_matrices = $load("accounting.counting.dimensions").attention_matrices;
const breakdown = $load("accounting.breakdown").breakdown;
const choose = $load("accounting.checks").choose;
const constant = $load("accounting.formula").constant;
const ffn_layers = $load("accounting.counting.layers").ffn_layers;
const instance = $load("accounting.checks").instance;
const layers_named = $load("accounting.counting.layers").layers_named;
const positive = $load("accounting.checks").positive;
const replace = $load("dataclasses").replace;
let RECOMPUTATIONS;
RECOMPUTATIONS = $tuple(["none", "fused", "selective", "operators", "full"]);
let PAIRS;
PAIRS = dict([["full", "every one of the seq² pairs of positions, masked or not, as an explicit matrix multiplication computes them"], ["half", "half of the seq² pairs of positions, the usual approximation of causality"], ["causal", "exactly the pairs a causal mask shows: seq·(seq + 1)/2, fewer with a window"]]);
let forward_flops;
forward_flops = $def("forward_flops", "shape seq_len= batch_size= * pairs=", [null, 1n, "full"], function (shape, seq_len, batch_size, pairs) {
let batch, seq;

instance("shape", shape, TransformerShape, "SHAPES");
seq = Symbol("seq", shape.sequence(seq_len));
batch = Symbol("batch", positive("batch_size", batch_size));
choose("pairs", pairs, PAIRS);
return breakdown("forward FLOPs", FLOPs, _forward(shape, seq, batch, doubled_pairs(shape, seq, pairs)), ("" + "matrix multiplications only; attention scores over " + $format($item(PAIRS, pairs), "")));
});
let prefill_flops;
prefill_flops = $def("prefill_flops", "shape prompt= batch_size=", [null, 1n], function (shape, prompt, batch_size) {
let batch, seq, terms;

seq = Symbol("seq", shape.sequence(prompt));
batch = Symbol("batch", positive("batch_size", batch_size));
terms = _forward(shape, seq, batch, doubled_pairs(shape, seq, "causal"));
$set(terms, "head", $mul(2n, $mul($mul(batch, Dimensions(shape).d_model), Dimensions(shape).vocab)));
return breakdown("prefill FLOPs", FLOPs, terms, ("" + "matrix multiplications only, the head at the last position alone; attention scores over " + $format($item(PAIRS, "causal"), "")));
});
let decode_flops;
decode_flops = $def("decode_flops", "shape context= batch_size=", [null, 1n], function (shape, context, batch_size) {
let batch, pairs, seen;

seen = Symbol("context", shape.sequence(context));
batch = Symbol("batch", positive("batch_size", batch_size));
pairs = _pairs(shape, ((attention, layers) => $mul(2n, $mul(layers, cached(attention, seen)))));
return breakdown("decode FLOPs", FLOPs, _forward(shape, constant(1n), batch, pairs, {__proto__: $k, absorbed: true}), "matrix multiplications of one token a sequence, which sees the context positions of the cache");
});
let cached;
cached = $def("cached", "attention seen", [], function (attention, seen) {
let window;

if (($is(attention.limit, null) || $ge(attention.limit, int(seen)))) {
return seen;
}
window = Symbol("window", getattr(attention, "limit"));
return ($true(attention.chunked) ? $add($mod($sub(seen, 1n), window), 1n) : window);
});
let doubled_pairs;
doubled_pairs = $def("doubled_pairs", "shape seq pairs=", ["causal"], function (shape, seq, pairs) {

if ($eq(pairs, "full")) {
return _pairs(shape, ((_, layers) => $mul(layers, $mul($mul(2n, seq), seq))));
}
if ($eq(pairs, "half")) {
return _pairs(shape, ((_, layers) => $mul(layers, $mul(seq, seq))));
}
return _pairs(shape, ((attention, layers) => $mul(layers, _doubled(attention, seq))));
});
let _doubled;
_doubled = $def("_doubled", "attention seq", [], function (attention, seq) {
let rest, window;
if (($is(attention.limit, null) || $ge(attention.limit, int(seq)))) {
return $mul(seq, $add(seq, 1n));
}
window = Symbol("window", getattr(attention, "limit"));
if ($true(attention.chunked)) {
rest = $mod(seq, window);
return $add($mul($floordiv(seq, window), $mul(window, $add(window, 1n))), $mul(rest, $add(rest, 1n)));
}
return $add($mul(window, $add(window, 1n)), $mul($mul(2n, window), $sub(seq, window)));
});
let _pairs;
_pairs = $def("_pairs", "shape count", [], function (shape, count) {
let attention, key, layers, pairs, sums;

sums = dict([]);
for ([attention, layers] of windows(shape).items()) {
if (!$true(isinstance(attention, Mixer))) {
[pairs, key] = $tuple([count(attention, layers), type(attention)]);
$set(sums, key, ($in(key, sums) ? $add($item(sums, key), pairs) : pairs));
if (($true(isinstance(attention, LatentAttention)) && $isnot(attention.indexer, null))) {
$set(sums, Indexer, count(replace(attention, {__proto__: $k, indexer: null}), layers));
}
}
}
return sums;
});
let windows;
windows = $def("windows", "shape", [], function (shape) {
let count, counts, key, kind, names, order;

counts = dict([]);
for ([kind, count] of shape.counts.items()) {
key = kind.attention;
if ($true(isinstance(key, Attention))) {
key = Attention(getattr(key, "window"), getattr(key, "chunked"), false, "none", {__proto__: $k, reuses: key.reuses});
}
if (!$true(isinstance(key, Mixer))) {
$set(counts, key, $add(counts.get(key, 0n), count));
}
}
order = sorted(counts, {__proto__: $k, key: ((one) => $or(one.window, () => 0n))});
names = dict((function* ($first) { for (const key of $first) yield [key, ($true(key.window) ? "window" : ($true(isinstance(key, Attention)) ? "full" : "latent"))]; })(order));
return dict((function* ($first) { for (const key of $first) yield [key, layers_named(shape, $item(names, key), $item(counts, key))]; })(order));
});
let score_flops;
score_flops = $def("score_flops", "shape batch pairs * absorbed=", [false], function (shape, batch, pairs, absorbed) {
let attention, doubled, m, n, of_keys, of_values, values, width;

n = Dimensions(shape);
[of_keys, of_values] = $tuple([[], []]);
for ([attention, doubled] of pairs.items()) {
width = n.head_dim;values = width;
if (($is(attention, Indexer) && $isnot(shape.latent, null))) {
m = LatentDimensions(getattr(shape, "latent"));
of_keys.append($mul($mul($mul(batch, m.index_heads), $add(m.index_dim, 1n)), doubled));
continue;
}
if (($is(attention, LatentAttention) && $isnot(shape.latent, null))) {
m = LatentDimensions(getattr(shape, "latent"));
width = ($true(absorbed) ? $add(m.kv_rank, m.rope_dim) : $add(m.nope_dim, m.rope_dim));
values = ($true(absorbed) ? m.kv_rank : m.value_dim);
}
of_keys.append($mul($mul($mul(batch, n.n_heads), width), doubled));
of_values.append($mul($mul($mul(batch, n.n_heads), values), doubled));
}
return dict([["keys", added(of_keys)], ["values", added(of_values)]]);
});
let state_flops;
state_flops = $def("state_flops", "shape tokens", [], function (shape, tokens) {
let layers, mixer, size, sums;

sums = dict([]);
for ([mixer, layers] of attention_groups(shape).items()) {
if (($true(isinstance(mixer, Mixer)) && $true(mixer.flops))) {
size = $mul($mul(tokens, layers), mixer.flops);
$set(sums, mixer.name, ($in(mixer.name, sums) ? $add($item(sums, mixer.name), size) : size));
}
}
return sums;
});
let _forward;
_forward = $def("_forward", "shape seq batch pairs * absorbed=", [false], function (shape, seq, batch, pairs, absorbed) {
let alike, attention, each, ffn, layers, m, n, one, projections, routed, router, scores, size, terms, tokens;
[n, tokens] = $tuple([Dimensions(shape), $mul(batch, seq)]);
[projections, ffn, router] = $tuple([[], [], []]);
for ([attention, layers] of attention_groups(shape).items()) {
if (($true(isinstance(attention, Attention)) && !$true(attention.reuses))) {
size = $mul(4n, $mul($mul($mul($mul(tokens, layers), n.d_model), n.head_dim), $add(n.n_heads, n.n_kv_heads)));
if ($true(attention.gated)) {
size = $mul(2n, $mul($mul($mul($mul(tokens, layers), n.d_model), n.head_dim), $add($mul(3n, n.n_heads), $mul(2n, n.n_kv_heads))));
}
projections.append(size);
} else {
projections.append($mul(2n, $mul($mul(tokens, layers), added(attention_matrices(shape, attention).values()))));
}
}
each = $mul(2n, shape.matrices_of_ffn);
for ([one, layers] of ffn_layers(shape).items()) {
[m, routed] = $tuple([FfnDimensions(shape, one), $mul(tokens, layers)]);
size = $mul(each, $mul($mul(routed, n.d_model), m.d_ff));
ffn.append(($is(one.experts, null) ? size : $mul(m.active_experts, size)));
if ($isnot(one.shared_d_ff, null)) {
ffn.append($mul(each, $mul($mul(routed, n.d_model), m.shared_d_ff)));
}
if ($true(one.shared_gate)) {
ffn.append($mul(2n, $mul(routed, n.d_model)));
}
if ($isnot(one.experts, null)) {
router.append($mul(2n, $mul($mul(routed, n.d_model), m.n_experts)));
}
}
scores = score_flops(shape, batch, pairs, {__proto__: $k, absorbed: absorbed});
alike = $notin(LatentAttention, pairs);
terms = dict([["projections", added(projections)], ["scores", ($true(alike) ? $mul(2n, $item(scores, "keys")) : $add($item(scores, "keys"), $item(scores, "values")))], ["ffn", added(ffn)]]);
terms = $union(terms, state_flops(shape, tokens));
if ($true(shape.value_embeddings)) {
layers = Symbol("value_layers", getattr(shape, "value_embeddings"));
$set(terms, "value gates", $mul(2n, $mul($mul($mul(tokens, layers), n.d_model), n.n_kv_heads)));
}
if ($true(router)) {
$set(terms, "router", added(router));
}
if ($isnot(shape.lora_rank, null)) {
[one] = shape.ffns;
$set(terms, "adapters", $mul(2n, $mul($mul(tokens, n.n_layers), adapter_elements(shape, getattr(one, "active")))));
}
return dict([...terms.items(), ["head", $mul(2n, $mul($mul(tokens, n.d_model), n.vocab))]]);
});
let backward_terms;
backward_terms = $def("backward_terms", "shape forward", [], function (shape, forward) {
let frozen;

frozen = ($is(shape.lora_rank, null) ? $tuple([]) : $tuple(["projections", "ffn", "router", "head"]));
return dict((function* ($first) { for (const [name, term] of $first) yield [name, ($in(name, frozen) ? term : $mul(2n, term))]; })(forward.items()));
});
let training_flops;
training_flops = $def("training_flops", "shape seq_len= batch_size= * pairs= recompute=", [null, 1n, "full", "none"], function (shape, seq_len, batch_size, pairs, recompute) {
let d_ff, elements, forward, n, terms, tokens;

instance("shape", shape, TransformerShape, "SHAPES");
forward = dict(getattr(forward_flops(shape, seq_len, batch_size, {__proto__: $k, pairs: pairs}), "terms"));
choose("recompute", recompute, RECOMPUTATIONS);
terms = dict((function* ($first) { for (const [name, term] of $first) yield [("" + "forward " + $format(name, "")), term]; })(forward.items()));
terms = $union(terms, dict((function* ($first) { for (const [name, term] of $first) yield [("" + "backward " + $format(name, "")), term]; })(backward_terms(shape, forward).items())));
if ($eq(recompute, "fused")) {
$set(terms, "recomputed scores", $floordiv($item(forward, "scores"), 2n));
} else {
if ($eq(recompute, "selective")) {
$set(terms, "recomputed scores", $item(forward, "scores"));
} else {
if ($eq(recompute, "operators")) {
if ((!$true(shape.plain) || $gt(shape.most_experts, 1n))) {
throw ValueError("recompute 'operators' is counted of models like Llama alone: use 'full'");
}
[n, tokens] = $tuple([Dimensions(shape), $mul(Symbol("batch", batch_size), Symbol("seq", shape.sequence(seq_len)))]);
d_ff = FfnDimensions(shape, next(iter(getattr(shape, "ffns")))).d_ff;
elements = $mul($mul(n.n_layers, n.d_model), $add($mul($add(n.n_heads, n.n_kv_heads), n.head_dim), d_ff));
$set(terms, "recomputed matmuls", $mul($mul(2n, tokens), elements));
} else {
if ($eq(recompute, "full")) {
terms = $union(terms, dict((function* ($first) { for (const [name, term] of $first) if ($ne(name, "head")) yield [("" + "recomputed " + $format(name, "")), term]; })(forward.items())));
}
}
}
}
return breakdown("training FLOPs", FLOPs, terms, $add($add($add("matrix multiplications of forward and backward, the backward ", ($is(shape.lora_rank, null) ? "exactly twice the forward; " : "of a frozen matrix as much as its forward; ")), ($eq(recompute, "none") ? "nothing recomputed (model FLOPs)" : ("" + "recomputing: " + $format(recompute, "") + " (hardware FLOPs)"))), ("" + "; scores over " + $format($item(PAIRS, pairs), ""))));
});
return {RECOMPUTATIONS, PAIRS, forward_flops, prefill_flops, decode_flops, cached, doubled_pairs, _doubled, _pairs, windows, score_flops, state_flops, _forward, backward_terms, training_flops};
};
$modules["accounting.hardware.devices"] = () => {
const ByteRate = $load("accounting.units").ByteRate;
const Bytes = $load("accounting.units").Bytes;
const FLOPRate = $load("accounting.units").FLOPRate;
const dataclass = $load("dataclasses").dataclass;
const human = $load("accounting.units").human;
let MEASURED;
MEASURED = "measured";
let FORMATS;
FORMATS = $tuple(["bf16", "fp16", "tf32", "fp32", "fp8", "int8"]);
let UNKNOWN;
UNKNOWN = FLOPRate(0.0);
let Device;
Device = $class("Device", [], true, [["name"], ["peaks"], ["memory"], ["bandwidth"], ["source"], ["matmul", UNKNOWN], ["matmul_source", ""]], ($c) => {
$c.measured = property($def("measured", "self", [], function (self) {

return $eq(self.source, MEASURED);
}));
$c.maker = property($def("maker", "self", [], function (self) {

return $item(self.source.$split(), 0n).rstrip("'s:");
}));
$c.known_bandwidth = property($def("known_bandwidth", "self", [], function (self) {

if (!$true(self.bandwidth)) {
throw ValueError(("" + $format(self.name, "") + " has no known bandwidth: give one to measured_device"));
}
return self.bandwidth;
}));
$c.attainable = property($def("attainable", "self", [], function (self) {
let measured;

if ($true(self.measured)) {
return 1.0;
}
if ($true(self.matmul)) {
return $div(float(getattr(self, "matmul")), float($item(self.peaks, "bf16")));
}
measured = [...(function* ($first) { for (const one of $first) if ($true(one.matmul)) yield one; })(DEVICES.values())];
return min((function* ($first) { for (const one of $first) yield one.attainable; })($or([...(function* ($first) { for (const one of $first) if ($eq(one.maker, self.maker)) yield one; })(measured)], () => measured)));
}));
$c.rate_in_words = $def("rate_in_words", "self dtype", [], function (self, dtype) {
let rate;

rate = human(self.peak(dtype));
return ($true(self.measured) ? ("" + "the " + $format(rate, "") + " that were measured") : ("" + $format(dtype, "") + " dense peak, " + $format(rate, "") + " (" + $format(self.source, "") + ")"));
});
$c.peak = $def("peak", "self dtype", [], function (self, dtype) {

if ($notin(dtype, self.peaks)) {
throw ValueError(("" + $format(self.name, "") + " has no published " + $format(dtype, "") + " peak, use one of " + $format(", ".join(getattr(self, "peaks")), "")));
}
return $item(self.peaks, dtype);
});
});
let lines;
lines = () => $json("[[\"name\", \"memory GB\", \"bandwidth GB/s\", \"bf16 TFLOP/s\", \"fp16 TFLOP/s\", \"tf32 TFLOP/s\", \"fp32 TFLOP/s\", \"fp8 TFLOP/s\", \"int8 TFLOP/s\", \"source\", \"matmul TFLOP/s\", \"matmul source\", \"node size\", \"link GB/s\", \"network Gb/s\", \"interconnect source\", \"link measured GB/s\", \"link measured source\"], [\"v100-16gb\", \"16\", \"900\", \"\", \"125\", \"\", \"15.7\", \"\", \"\", \"NVIDIA V100 datasheet (SXM2)\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"v100-32gb\", \"32\", \"900\", \"\", \"125\", \"\", \"15.7\", \"\", \"\", \"NVIDIA V100 datasheet (SXM2)\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"v100-pcie-16gb\", \"16\", \"900\", \"\", \"112\", \"\", \"14\", \"\", \"\", \"NVIDIA V100 datasheet (PCIe)\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"v100-pcie-32gb\", \"32\", \"900\", \"\", \"112\", \"\", \"14\", \"\", \"\", \"NVIDIA V100 datasheet (PCIe)\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"p100\", \"16\", \"732\", \"\", \"18.7\", \"\", \"9.3\", \"\", \"\", \"NVIDIA Tesla P100 datasheet (PCIe)\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"t4\", \"16\", \"320\", \"\", \"65\", \"\", \"8.1\", \"\", \"130\", \"NVIDIA T4 datasheet\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"a100-40gb\", \"40\", \"1555\", \"312\", \"312\", \"156\", \"19.5\", \"\", \"624\", \"NVIDIA A100 Tensor Core GPU datasheet (SXM4, PCIe)\", \"271.2\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"300\", \"200\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py: of one device in a node and between nodes\", \"235\", \"NVIDIA NCCL, src/graph/tuning.cc: the most on an A100\"], [\"a100-80gb\", \"80\", \"2039\", \"312\", \"312\", \"156\", \"19.5\", \"\", \"624\", \"NVIDIA A100 Tensor Core GPU datasheet (SXM4)\", \"271.2\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"300\", \"200\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py: of one device in a node and between nodes\", \"235\", \"NVIDIA NCCL, src/graph/tuning.cc: the most on an A100\"], [\"a100-80gb-pcie\", \"80\", \"1935\", \"312\", \"312\", \"156\", \"19.5\", \"\", \"624\", \"NVIDIA A100 Tensor Core GPU datasheet (PCIe)\", \"252.9\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"a10\", \"24\", \"600\", \"125\", \"125\", \"62.5\", \"\", \"\", \"250\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py, which quotes the A10 datasheet\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"a10g\", \"24\", \"600\", \"70\", \"70\", \"35\", \"\", \"\", \"140\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"a30\", \"24\", \"933\", \"165\", \"165\", \"82\", \"\", \"\", \"330\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py, which quotes the A30 datasheet\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"a40\", \"48\", \"696\", \"149.7\", \"149.7\", \"74.8\", \"37.4\", \"\", \"299.3\", \"NVIDIA A40 datasheet\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-a6000\", \"48\", \"768\", \"154.8\", \"154.8\", \"77.4\", \"38.7\", \"\", \"\", \"NVIDIA RTX A6000 datasheet, sparsity removed\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"l4\", \"24\", \"300\", \"121\", \"121\", \"60\", \"30.3\", \"242.5\", \"242.5\", \"NVIDIA L4 datasheet, sparsity removed\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"l40\", \"48\", \"864\", \"181\", \"181\", \"90\", \"\", \"362\", \"362\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py, which quotes the L40 datasheet\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"l40s\", \"48\", \"864\", \"362.05\", \"362.05\", \"183\", \"91.6\", \"733\", \"733\", \"NVIDIA L40S product page, which does not say what fp16 is accumulated in\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-6000-ada\", \"48\", \"960\", \"364.2\", \"364.2\", \"182.1\", \"91.1\", \"728.5\", \"\", \"NVIDIA RTX 6000 Ada Generation datasheet, sparsity removed\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"h100-pcie\", \"80\", \"2000\", \"756\", \"756\", \"378\", \"\", \"1513\", \"1513\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py, which quotes the datasheet of Tensor Core GPUs\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"h100\", \"80\", \"3350\", \"989\", \"989\", \"494\", \"67\", \"1979\", \"1979\", \"NVIDIA H100 Tensor Core GPU datasheet, sparsity removed (SXM5)\", \"794.5\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"450\", \"400\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py: of one device in a node and between nodes\", \"380\", \"NVIDIA NCCL issue 1264: one direction, measured\"], [\"gh200\", \"96\", \"4000\", \"989\", \"989\", \"494\", \"67\", \"1979\", \"1979\", \"NVIDIA GH200 Grace Hopper datasheet, HBM3, sparsity removed\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"h20\", \"96\", \"4000\", \"147\", \"147\", \"74\", \"\", \"293\", \"293\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"h200\", \"141\", \"4800\", \"989\", \"989\", \"\", \"67\", \"1979\", \"1979\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py, which quotes the H200 datasheet (SXM), sparsity removed\", \"794.5\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026: that of an H100\", \"8\", \"450\", \"400\", \"NVIDIA TensorRT-LLM, tensorrt_llm/auto_parallel/cluster_info.py: of one device in a node and between nodes\", \"396.4\", \"Bekman, ml-engineering, network: nvbandwidth, eight H200\"], [\"h200-nvl\", \"141\", \"4800\", \"835.5\", \"835.5\", \"417.5\", \"60\", \"1670.5\", \"1670.5\", \"NVIDIA H200 product page, NVL, sparsity removed\", \"853\", \"gpu-flops-bench by xzwgit (cuBLASLt), README, August 2026\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"b200\", \"180\", \"7700\", \"2250\", \"2250\", \"1125\", \"75\", \"4500\", \"4500\", \"NVIDIA Blackwell datasheet, one GPU of an HGX B200, sparsity removed\", \"1745\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"900\", \"400\", \"NVIDIA DGX B200 user guide: 14.4 TB/s of NVLink for eight GPUs, eight adapters of 400 Gb/s\", \"\", \"\"], [\"gb200\", \"186\", \"8000\", \"2500\", \"2500\", \"1250\", \"80\", \"5000\", \"5000\", \"NVIDIA GB200 NVL72 specifications, one GPU, sparsity removed, as quoted by Bekman, ml-engineering, August 2026\", \"1822\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"72\", \"900\", \"400\", \"NVIDIA NVLink 5 and DGX GB200 user guide, as quoted by Bekman, ml-engineering, August 2026\", \"\", \"\"], [\"b300\", \"288\", \"8000\", \"2250\", \"2250\", \"1125\", \"80\", \"4500\", \"\", \"NVIDIA DGX B300 datasheet, one GPU, sparsity removed, as quoted by Bekman, ml-engineering, August 2026\", \"1769\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"900\", \"800\", \"NVIDIA NVLink 5 and DGX B300 (ConnectX-8), as quoted by Bekman, ml-engineering, August 2026\", \"\", \"\"], [\"gb300\", \"288\", \"8000\", \"2500\", \"2500\", \"1250\", \"80\", \"5000\", \"\", \"NVIDIA GB300 NVL72 specifications, one GPU, sparsity removed, as quoted by Bekman, ml-engineering, August 2026; bandwidth: a B300's\", \"1822\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026: that of a GB200\", \"72\", \"900\", \"800\", \"NVIDIA NVLink 5 and GB300 NVL72 (ConnectX-8), as quoted by Bekman, ml-engineering, August 2026\", \"\", \"\"], [\"rtx-pro-6000\", \"96\", \"1792\", \"500\", \"500\", \"250\", \"125\", \"1000\", \"\", \"NVIDIA at GTC 2025: 188 multiprocessors, 125 TFLOP/s of fp32, 1,792 GB/s; bf16 with fp32 sums is four times that\", \"458\", \"gpu-flops-bench by xzwgit (cuBLASLt), README, August 2026\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"mi300x\", \"192\", \"5300\", \"1307.4\", \"1307.4\", \"653.7\", \"163.4\", \"2614.9\", \"2614.9\", \"AMD ROCm documentation, MI300 microarchitecture; memory: AMD Instinct MI300X datasheet\", \"668.4\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"448\", \"400\", \"AMD Infinity Fabric, seven links of 64 GB/s each way, as quoted by Bekman, ml-engineering, August 2026; one 400 Gb/s adapter a device is assumed\", \"312.9\", \"Bekman, ml-engineering, network: all-reduce of 4 GiB over eight\"], [\"mi325x\", \"256\", \"6000\", \"1307.4\", \"1307.4\", \"653.7\", \"163.4\", \"2614.9\", \"\", \"AMD Instinct MI325X datasheet\", \"784.9\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"448\", \"400\", \"AMD Infinity Fabric, seven links of 64 GB/s each way, as quoted by Bekman, ml-engineering, August 2026; one 400 Gb/s adapter a device is assumed\", \"\", \"\"], [\"mi350x\", \"288\", \"8000\", \"2306.9\", \"2306.9\", \"\", \"144.2\", \"4613.7\", \"\", \"AMD Instinct MI355X specifications at an MI350X's 2,200 of 2,400 MHz, as quoted by Bekman, ml-engineering, August 2026\", \"\", \"\", \"8\", \"535.5\", \"400\", \"AMD Infinity Fabric, seven links of 76.5 GB/s each way, as quoted by Bekman, ml-engineering, August 2026; one 400 Gb/s adapter a device is assumed\", \"\", \"\"], [\"mi355x\", \"288\", \"8000\", \"2516.6\", \"2516.6\", \"\", \"157.3\", \"5033.2\", \"5033.2\", \"AMD Instinct MI355X specifications, as quoted by Bekman, ml-engineering, August 2026\", \"1565\", \"Bekman, ml-engineering, compute/accelerator (maximum achievable matmul FLOPS), August 2026\", \"8\", \"535.5\", \"400\", \"AMD Infinity Fabric, seven links of 76.5 GB/s each way, as quoted by Bekman, ml-engineering, August 2026; one 400 Gb/s adapter a device is assumed\", \"\", \"\"], [\"mi250x\", \"64\", \"1600\", \"191.5\", \"191.5\", \"\", \"47.85\", \"\", \"\", \"AMD's table of the MI200 series, halved: one of its two dies, which is what software sees as a device\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"tpu-v4\", \"32\", \"1200\", \"275\", \"\", \"\", \"\", \"\", \"275\", \"Google Cloud documentation, TPU v4\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"tpu-v5e\", \"16\", \"819\", \"197\", \"\", \"\", \"\", \"\", \"393\", \"Google Cloud documentation, TPU v5e\", \"\", \"\", \"256\", \"200\", \"25\", \"Google Cloud documentation, TPU v5e: a pod of 256, 400 GB/s both ways, 6.4 Tb/s a pod\", \"\", \"\"], [\"tpu-v5p\", \"95\", \"2765\", \"459\", \"\", \"\", \"\", \"\", \"\", \"Google Cloud documentation, TPU v5p\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"tpu-v6e\", \"32\", \"1638\", \"918\", \"\", \"\", \"\", \"\", \"1836\", \"Google Cloud documentation, TPU v6e\", \"827.5\", \"Google tpu-recipes, microbenchmarks, August 2026: 8192 cubed\", \"256\", \"400\", \"100\", \"Google Cloud documentation, TPU v6e: a pod of 256, 800 GB/s both ways, 25.6 Tb/s a pod\", \"235.8\", \"Google tpu-recipes, microbenchmarks/trillium/collectives: psum over 256 chips\"], [\"tpu7x\", \"192\", \"\", \"2307\", \"\", \"\", \"\", \"4614\", \"\", \"Google Cloud documentation, TPU7x (Ironwood)\", \"1912.8\", \"Google tpu-recipes, microbenchmarks, August 2026: 32768 cubed, both devices of a chip\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"trainium2\", \"96\", \"2900\", \"667\", \"667\", \"667\", \"181\", \"1299\", \"\", \"Amazon: AWS Neuron documentation, Trainium2 architecture; bandwidth as quoted by Bekman, ml-engineering, August 2026\", \"\", \"\", \"16\", \"640\", \"200\", \"Amazon: AWS Neuron documentation, 1.28 TB/s of NeuronLink both ways, and EFA v3, as quoted by Bekman, ml-engineering, August 2026\", \"\", \"\"], [\"rtx-2080-ti\", \"11\", \"616\", \"\", \"53.8\", \"\", \"13.4\", \"\", \"\", \"NVIDIA Turing GPU architecture whitepaper, reference clocks\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-2060\", \"6\", \"336\", \"\", \"25.8\", \"\", \"6.5\", \"\", \"\", \"NVIDIA GeForce RTX 2060: 51.6 TFLOP/s of fp16, halved for sums in fp32 as in the Turing whitepaper\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-3060\", \"12\", \"360\", \"25.5\", \"25.5\", \"12.7\", \"12.7\", \"\", \"\", \"NVIDIA GeForce RTX 3060: 3,584 cores at 1,777 MHz, with the ratios of the Ampere GA102 whitepaper\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-3070\", \"8\", \"448\", \"40.6\", \"40.6\", \"20.3\", \"20.3\", \"\", \"\", \"NVIDIA Ampere GA102 GPU architecture whitepaper, appendix A\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-3080\", \"10\", \"760\", \"59.5\", \"59.5\", \"29.8\", \"29.8\", \"\", \"\", \"NVIDIA Ampere GA102 GPU architecture whitepaper, appendix A\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-3090\", \"24\", \"936\", \"71\", \"71\", \"35.6\", \"35.6\", \"\", \"\", \"NVIDIA Ampere GA102 GPU architecture whitepaper, appendix A\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-4060\", \"8\", \"272\", \"30.2\", \"30.2\", \"15.1\", \"15.1\", \"60.5\", \"\", \"NVIDIA GeForce RTX 4060: 15.1 TFLOP/s of fp32, with the ratios of the Ada whitepaper\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-4070\", \"12\", \"504\", \"58.3\", \"58.3\", \"29.1\", \"29.1\", \"116.6\", \"\", \"NVIDIA GeForce RTX 4070: 29.1 TFLOP/s of fp32, with the ratios of the Ada whitepaper\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-4080\", \"16\", \"716.8\", \"97.5\", \"97.5\", \"48.7\", \"48.7\", \"194.9\", \"\", \"NVIDIA Ada GPU architecture whitepaper, appendices\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-4090\", \"24\", \"1008\", \"165.2\", \"165.2\", \"82.6\", \"82.6\", \"330.3\", \"\", \"NVIDIA Ada GPU architecture whitepaper, appendices\", \"179\", \"gpu-flops-bench by xzwgit (cuBLASLt), README, August 2026\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-5070\", \"12\", \"672\", \"61.7\", \"61.7\", \"30.9\", \"30.9\", \"\", \"\", \"NVIDIA RTX Blackwell GPU architecture whitepaper, appendix B\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-5070-ti\", \"16\", \"896\", \"87.9\", \"87.9\", \"43.9\", \"43.9\", \"175.8\", \"\", \"NVIDIA RTX Blackwell GPU architecture whitepaper, appendix B\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-5080\", \"16\", \"960\", \"112.6\", \"112.6\", \"56.3\", \"56.3\", \"225.1\", \"\", \"NVIDIA RTX Blackwell GPU architecture whitepaper, appendix B\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"rtx-5090\", \"32\", \"1792\", \"209.5\", \"209.5\", \"104.8\", \"104.8\", \"419\", \"\", \"NVIDIA RTX Blackwell GPU architecture whitepaper, appendix B\", \"254\", \"gpu-flops-bench by xzwgit (cuBLASLt), README, August 2026\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"m1\", \"16\", \"68.25\", \"\", \"\", \"\", \"2.6\", \"\", \"\", \"Apple's announcement, which names no number format: its figure is that of fp32\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"m1-pro\", \"32\", \"200\", \"\", \"\", \"\", \"5.2\", \"\", \"\", \"Apple's announcement, which names no number format: its figure is that of fp32\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"m1-max\", \"64\", \"400\", \"\", \"\", \"\", \"10.4\", \"\", \"\", \"Apple's announcement, which names no number format: its figure is that of fp32\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"m1-ultra\", \"128\", \"800\", \"\", \"\", \"\", \"21\", \"\", \"\", \"Apple's announcement, which names no number format: its figure is that of fp32\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"], [\"m2\", \"24\", \"100\", \"\", \"\", \"\", \"3.6\", \"\", \"\", \"Apple's announcement, which names no number format: its figure is that of fp32\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\"]]");
let rows;
rows = $def("rows", "", [], function () {
let names, others;

[names, others] = $gathered(lines(), 1, 0);
return [...(function* ($first) { for (const line of $first) yield dict(zip(names, line, {__proto__: $k, strict: true})); })(others)];
});
let _from_row;
_from_row = $def("_from_row", "row", [], function (row) {
let peaks;
peaks = dict((function* ($first) { for (const name of $first) if ($true($item(row, ("" + $format(name, "") + " TFLOP/s")))) yield [name, FLOPRate($mul(float($item(row, ("" + $format(name, "") + " TFLOP/s"))), 1000000000000.0))]; })(FORMATS));
return Device({__proto__: $k, name: $item(row, "name"), peaks: peaks, memory: Bytes(round($mul(float($item(row, "memory GB")), 1000000000.0))), bandwidth: ByteRate($mul(float($or($item(row, "bandwidth GB/s"), () => 0n)), 1000000000.0)), source: $item(row, "source"), matmul: FLOPRate($mul(float($or($item(row, "matmul TFLOP/s"), () => 0n)), 1000000000000.0)), matmul_source: $item(row, "matmul source")});
});
let ROWS;
ROWS = rows();
let DEVICES;
DEVICES = dict((function* ($first) { for (const row of $first) yield [$item(row, "name"), _from_row(row)]; })(ROWS));
return {MEASURED, FORMATS, UNKNOWN, Device, lines, rows, _from_row, ROWS, DEVICES};
};
$modules["accounting.models.families"] = () => {
const Attention = $load("accounting.layer").Attention;
const FeedForward = $load("accounting.layer").FeedForward;
const Indexer = $load("accounting.layer").Indexer;
const LatentAttention = $load("accounting.layer").LatentAttention;
const Layer = $load("accounting.layer").Layer;
const Mapping = $load("collections.abc").Mapping;
const Mixer = $load("accounting.layer").Mixer;
const NOTHING = $load("accounting.models.mixers").NOTHING;
const TransformerShape = $load("accounting.shape").TransformerShape;
const defaults = $load("accounting.models.defaults").defaults;
const having = $load("accounting.models.defaults").having;
const mixers = $load("accounting.models.mixers");
const pattern = $load("accounting.layer").pattern;
const positive = $load("accounting.checks").positive;
const tables = $load("accounting.models.defaults").tables;
let MOST_LISTED;
MOST_LISTED = $shl(1n, 14n);
let from_config;
from_config = $def("from_config", "config", [], function (config) {

if (!$true(isinstance(config, Mapping))) {
throw ValueError(("" + "expected the contents of a config.json as a dict, got " + $format(type(config).__name__, "")));
}
return shape_of_family(...text_of(config));
});
let text_of;
text_of = $def("text_of", "config", [], function (config) {
let family, inner;

[family, inner] = $tuple([str(config.get("model_type")), config.get("text_config")]);
if ($true(isinstance(inner, dict))) {
family = str($or(inner.get("model_type"), () => ("" + $format(family, "") + "_text")));
config = inner;
}
return $tuple([$item(tables(), "aliases").get(family, family), config]);
});
let shape_of_family;
shape_of_family = $def("shape_of_family", "family config", [], function (family, config) {
let name, renamed, settings, value;

if ($notin(family, defaults())) {
throw ValueError(("" + "model_type " + $format(repr(family), "") + " is not known: describe it by --layers, --d-model, --heads, --d-ff and --vocab, or TransformerShape(…); known are " + $format(", ".join(defaults()), "")));
}
renamed = dict((function* ($first) { for (const [name, value] of $first) if ((($isnot(value, null) || $notin(name, $item(tables(), "renamed"))) && !($eq(name, "intermediate_size") && $in(family, having("own ffn name"))))) yield [$item(tables(), "renamed").get(name, name), value]; })(config.items()));
settings = _Settings(family, _listed_layers(family, dict([...$item(defaults(), family).items(), ...renamed.items()])));
for ([name, value] of $item(tables(), "refused").items()) {
if ($notin(settings.get(name, value), $tuple([value, null]))) {
throw ValueError(("" + $format(name, "") + " is " + $format(repr(settings.get(name)), "") + ", and its cost is not known here"));
}
}
return settings.shape();
});
let _listed_layers;
_listed_layers = $def("_listed_layers", "family values", [], function (family, values) {
let kinds, text, widths;

widths = values.get("intermediate_size");
if (($true(isinstance(widths, list)) && $true(widths) && $true(all((function* ($first) { for (const width of $first) yield $eq(width, $item(widths, 0n)); })(widths))))) {
$set(values, "intermediate_size", $item(widths, 0n));
}
if ($eq(family, "nemotron_h")) {
text = values.get("hybrid_override_pattern");
if (($is(values.get("layer_types"), null) && $true(isinstance(text, str)))) {
if ($true($sub(set(text), set($item(tables(), "nemotron"))))) {
throw ValueError(("" + "expected hybrid_override_pattern of " + $format(", ".join($item(tables(), "nemotron")), "") + ", got " + $format(repr(text), ("" + ".80"))));
}
$set(values, "layer_types", [...(function* ($first) { for (const one of $first) yield $item($item(tables(), "nemotron"), one); })(text)]);
}
kinds = values.setdefault("layer_types", list($item(tables(), "nemotron").values()));
$set(values, "num_hidden_layers", ($true(isinstance(kinds, list)) ? len(kinds) : 0n));
}
return values;
});
let _Settings;
_Settings = $class("_Settings", [], false, [], ($c) => {
$c.__init__ = $def("__init__", "self family values", [], function (self, family, values) {
[self.family, self.values] = $tuple([family, values]);
});
$c.get = $def("get", "self name default=", [null], function (self, name, default$) {
return self.values.get(name, default$);
});
$c.whole = $def("whole", "self name", [], function (self, name) {
let value;
value = self.values.get(name);
if (($true(isinstance(value, bool)) || !$true(isinstance(value, int)))) {
throw ValueError(("" + "config.json must give " + $format(name, "") + " as a whole number, and it gives " + $format(repr(value), ("" + ".80"))));
}
return value;
});
$c.switch = $def("switch", "self name default=", [false], function (self, name, default$) {
let value;
value = self.values.get(name);
if ($is(value, null)) {
return default$;
}
if (!$true(isinstance(value, bool))) {
throw ValueError(("" + "config.json must give " + $format(name, "") + " as true or false, and it gives " + $format(repr(value), ("" + ".80"))));
}
return value;
});
$c.listed = $def("listed", "self name length=", [null], function (self, name, length) {
let size, value;

value = self.values.get(name);
if (($is(value, null) || $eq(value, []))) {
return null;
}
if ((!$true(isinstance(value, list)) || ($isnot(length, null) && $ne(len(value), length)))) {
size = ($is(length, null) ? "" : ("" + " of " + $format(length, "") + " entries, one for each layer"));
throw ValueError(("" + "config.json must give " + $format(name, "") + " as a list" + $format(size, "") + ", and it gives " + $format(repr(value), ("" + ".80"))));
}
return value;
});
$c.shape = $def("shape", "self", [], function (self) {
let body, d_ff, depth, experts, factor, ffn, latent, layers, name, only, run, simple, sizes, step, uniform, width;

[layers, width] = $tuple([self.whole("num_hidden_layers"), self.whole("hidden_size")]);
if ($gt(positive("num_hidden_layers", layers), MOST_LISTED)) {
throw ValueError(("" + "num_hidden_layers " + $format(layers, ("" + ".3g")) + " is more than " + $format(MOST_LISTED, ("" + ",")) + ": give fewer"));
}
depth = [...(function* ($first) { for (const at of $first) yield Layer(self.attention(at, layers), self.ffn(at)); })(range(layers))];
[latent, uniform] = $tuple([all((function* ($first) { for (const one of $first) yield !$true(isinstance(getattr(one, "attention"), Attention)); })(depth)), $eq(len(set(depth)), 1n)]);
sizes = dict([]);
[only, ffn] = $tuple([$item(depth, 0n).attention, $item(depth, 0n).ffn]);
experts = dict([]);
if ($isnot(ffn, null)) {
experts = dict([["experts", ffn.experts], ["experts_per_token", ffn.experts_per_token]]);
}
if (($true(uniform) && $is(ffn, null) && $isnot(only, null) && $eq(only, Attention(getattr(only, "window"))))) {
$set(sizes, "sliding_window", only.window);
} else {
if (($true(uniform) && $eq(only, Attention()) && $eq(ffn, FeedForward({__proto__: $k, ...$named(experts)})))) {
sizes = $union(sizes, experts);
} else {
simple = [...(function* ($first) { for (const one of $first) yield Layer(($eq(one.attention, Attention()) ? null : one.attention), getattr(one, "ffn")); })(depth)];
body = pattern(simple);
run = ($eq(len(body), layers) ? next((function* ($first) { for (const at of $first) if ($ne($item(simple, at), $item(simple, 0n))) yield at; })(range(layers)), 0n) : 0n);
sizes = $union(sizes, dict([["leading", tuple($slice(simple, null, run))], ["layers", pattern($slice(simple, run, null))]]));
}
}
name = ($in("moe_intermediate_size", $item(defaults(), self.family)) ? "moe_intermediate_size" : "intermediate_size");
d_ff = ($is(self.get(name), null) ? $mul(4n, width) : self.whole(name));
if (($eq(self.family, "lfm2") && $true(self.switch("block_auto_adjust_ff_dim", true)))) {
d_ff = int($div($mul(2n, d_ff), 3n));
if ($isnot((factor = self.get("block_ffn_dim_multiplier", 1.0)), null)) {
d_ff = $mul((step = self.get("block_multiple_of", 256n)), $neg($floordiv($neg(int($mul(factor, d_ff))), step)));
}
}
return TransformerShape(self.whole("vocab_size"), self.whole("max_position_embeddings"), layers, width, self.whole("num_attention_heads"), d_ff, {__proto__: $k, num_kv_heads: ($true(latent) ? null : self.kv_heads()), head_dim: ($true(latent) ? null : self.head_dim(width)), ffn: self.activation(), tied_embeddings: self.switch("tie_word_embeddings"), ...$named(self.norms()), ...$named(self.biases()), ...$named(sizes)});
});
$c.attention = $def("attention", "self at layers", [], function (self, at, layers) {
let beside, family, gated, indexer, kind, names, nope, norm, rank, ranks, reuses, rope, rotated, sinks, sizes, value, window;

family = self.family;
kind = self.kind(at, layers);
if ($in(kind, $tuple(["linear_attention", "conv", "mamba"]))) {
return self.mixer();
}
if ($in(kind, $tuple(["moe", "mlp"]))) {
return NOTHING;
}
if ($in(family, having("latent attention"))) {
ranks = ($is(self.get("q_lora_rank"), null) ? null : self.whole("q_lora_rank"));
names = $tuple(["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]);
[rank, nope, rope, value] = map(getattr(self, "whole"), names);
indexer = null;
if ($isnot(self.get("index_topk"), null)) {
indexer = Indexer(...map(getattr(self, "whole"), $tuple(["index_n_heads", "index_head_dim", "index_topk"])));
}
return LatentAttention(ranks, rank, nope, rope, value, indexer);
}
sizes = dict([["sliding_attention", "sliding_window"], ["chunked_attention", "attention_chunk_size"]]);
window = ($in(kind, sizes) ? self.whole($item(sizes, kind)) : null);
rotated = null;
if ($in(family, $tuple(["smollm3", "llama4_text"]))) {
rotated = ($true(self.rotated(at, layers)) ? null : false);
} else {
if (($eq(family, "cohere2") || ($eq(family, "exaone4") && $isnot(self.get("sliding_window"), null)))) {
rotated = ($true(window) ? null : false);
}
}
[norm, beside, reuses] = $tuple([null, null, false]);
if ($eq(family, "falcon_h1")) {
beside = self.mixer();
} else {
if ($eq(family, "gemma3n_text")) {
reuses = $ge(at, $sub(layers, self.whole("num_kv_shared_layers")));
beside = self.per_layer($eq(at, 0n));
}
}
if (($eq(family, "llama4_text") && $is(rotated, null) && $true(self.switch("use_qk_norm")))) {
norm = "l2";
}
[sinks, gated] = $tuple([$in(family, $tuple(["gpt_oss", "granite_swa"])), $in(family, having("gated delta"))]);
return Attention(window, $eq(kind, "chunked_attention"), rotated, norm, sinks, gated, reuses, beside);
});
$c.mixer = $def("mixer", "self", [], function (self) {
let bias, each, family, heads, inner, kernel, names, norm, parts, rank, sizes, state, width;

[family, width] = $tuple([self.family, self.whole("hidden_size")]);
if ($in(family, $tuple([...having("gated delta"), "olmo_hybrid"]))) {
parts = $tuple(["num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim"]);
sizes = [...(function* ($first) { for (const part of $first) yield self.whole(("" + "linear_" + $format(part, ""))); })(parts)];
return mixers.delta(...sizes, {__proto__: $k, merged: $eq(family, "qwen3_next")});
}
if ($eq(family, "kimi_linear")) {
names = $tuple(["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"]);
return mixers.kimi_delta(...map(getattr(self, "whole"), names));
}
if ($eq(family, "minimax")) {
heads = self.whole("num_attention_heads");
return mixers.lightning(heads, $or(self.head_dim(width), () => $floordiv(width, heads)));
}
if ($in(family, $tuple(["lfm2", "lfm2_moe"]))) {
return mixers.short_convolution(width, self.whole("conv_L_cache"), {__proto__: $k, bias: self.switch("conv_bias")});
}
if ($true(self.switch("mamba_proj_bias"))) {
throw ValueError("mamba_proj_bias is set, and its cost is not known here");
}
bias = self.switch("mamba_conv_bias", true);
if ($eq(family, "jamba")) {
[inner, state, kernel] = (function* ($first) { for (const name of $first) yield self.whole(("" + "mamba_" + $format(name, ""))); })($tuple(["expand", "d_state", "d_conv"]));
rank = ($eq(self.get("mamba_dt_rank"), "auto") ? $neg($floordiv($neg(width), 16n)) : self.whole("mamba_dt_rank"));
return mixers.mamba($mul(inner, width), state, rank, kernel, {__proto__: $k, convolution_bias: bias, norms: true});
}
heads = self.whole("mamba_n_heads");
norm = $or($ne(family, "falcon_h1"), () => self.switch("mamba_rms_norm"));
if ($eq(family, "nemotron_h")) {
each = self.whole("mamba_d_head");
} else {
each = $floordiv(($eq(family, "falcon_h1") ? self.whole("mamba_d_ssm") : $mul(self.whole("mamba_expand"), width)), heads);
}
sizes = [...(function* ($first) { for (const name of $first) yield self.whole(("" + "mamba_" + $format(name, ""))); })($tuple(["d_state", "n_groups", "d_conv"]))];
return mixers.mamba2(heads, each, ...sizes, {__proto__: $k, convolution_bias: bias, norm: norm});
});
$c.per_layer = $def("per_layer", "self first", [], function (self, first) {
let again, inputs, matrices, names, norms, rank, rows, side, width;

[rank, side] = $tuple([self.whole("laurel_rank"), self.whole("hidden_size_per_layer_input")]);
names = $tuple(["altup_num_inputs", "hidden_size", "vocab_size_per_layer_input"]);
[inputs, width, rows] = map(getattr(self, "whole"), names);
matrices = [$tuple(["laurel down", null, rank]), $tuple(["laurel up", rank, null]), $tuple(["gate of a layer's embedding", null, side]), $tuple(["up from a layer's embedding", side, null]), $tuple(["projection to a layer's embedding", null, side]), $tuple(["router of residual streams", null, inputs]), $tuple(["mixing of residual streams", inputs, $add($mul(inputs, inputs), inputs)])];
if ($true(first)) {
matrices = $add(matrices, [...(function* ($first) { for (const at of $first) yield $tuple([("" + "residual stream " + $format($add(at, 1n), "")), null, null]); })(range($mul(2n, $sub(inputs, 1n))))]);
}
norms = $tuple([...$mul(3n, [width]), ...($true(first) ? [side] : [])]);
again = $add($mul($mul(2n, inputs), width), $mul($mul($mul(2n, inputs), inputs), width));
return Mixer("altup mixing", tuple(matrices), $tuple([$mul(rows, side), width]), norms, {__proto__: $k, flops: again});
});
$c.kind = $def("kind", "self at layers", [], function (self, at, layers) {
let attends, chunked, counted, family, kinds, name, numbers, offset, period, sliding, turn;

[family, kinds] = $tuple([self.family, self.listed("layer_types", layers)]);
if (($isnot(kinds, null) && $notin(family, $tuple(["mistral", "mixtral", "phi3", "starcoder2", "qwen3_moe"])))) {
counted = $item(tables(), "other layers");
if ((!$true(isinstance($item(kinds, at), str)) || $notin($item(kinds, at), counted))) {
throw ValueError(("" + "layer_types has " + $format(repr($item(kinds, at)), ("" + ".80")) + ", whose cost is not known here"));
}
return str($item(counted, $item(kinds, at)));
}
if ($in(family, $tuple([...having("gated delta"), "olmo_hybrid"]))) {
return ($true($mod($add(at, 1n), 4n)) ? "linear_attention" : "full_attention");
}
if ($eq(family, "minimax")) {
return ($true($mod($add(at, 1n), 2n)) ? "full_attention" : "linear_attention");
}
if ($eq(family, "kimi_linear")) {
return (($eq($mod(at, 4n), 0n) && $true(at)) ? "full_attention" : "linear_attention");
}
if ($in(family, $tuple(["bamba", "granitemoehybrid", "lfm2"]))) {
name = dict([["bamba", "attn_layer_indices"], ["lfm2", "full_attn_idxs"]]).get(family, "attention_layers");
numbers = self.listed(name);
attends = ($is(numbers, null) ? $eq(family, "lfm2") : $in(at, numbers));
return ($true(attends) ? "full_attention" : "linear_attention");
}
if ($eq(family, "jamba")) {
[period, offset] = (function* ($first) { for (const name of $first) yield self.whole(("" + "attn_layer_" + $format(name, ""))); })($tuple(["period", "offset"]));
return ($eq($mod(at, positive("attn_layer_period", period)), offset) ? "full_attention" : "linear_attention");
}
if ($eq(family, "llama4_text")) {
chunked = $and(self.rotated(at, layers), () => self.get("attention_chunk_size"));
return ($true(chunked) ? "chunked_attention" : "full_attention");
}
sliding = $isnot(self.get("sliding_window"), null);
if ($in(family, $item(tables(), "window after"))) {
turn = self.get("sliding_window_pattern", $item($item(tables(), "window after"), family));
sliding = $and(sliding, () => $gt($mod($add(at, 1n), positive("sliding_window_pattern", turn)), 0n));
} else {
if ($in(family, $item(tables(), "window before"))) {
sliding = $and(sliding, () => $gt($mod(at, $item($item(tables(), "window before"), family)), 0n));
} else {
if ($in(family, $tuple(["qwen2", "qwen3", "qwen2_moe"]))) {
sliding = $and(sliding, () => $and(self.switch("use_sliding_window"), () => $ge(at, self.whole("max_window_layers"))));
} else {
if ($eq(family, "qwen3_moe")) {
sliding = $and(sliding, () => self.switch("use_sliding_window"));
} else {
if ($eq(family, "smollm3")) {
sliding = $and(sliding, () => $and(self.switch("use_sliding_window"), () => !$true(self.rotated(at, layers))));
} else {
if ($notin(family, $tuple(["mistral", "mixtral", "phi3", "starcoder2", "ministral", "ministral3"]))) {
sliding = false;
}
}
}
}
}
}
return ($true(sliding) ? "sliding_attention" : "full_attention");
});
$c.rotated = $def("rotated", "self at layers", [], function (self, at, layers) {
let switches;

switches = self.listed("no_rope_layers", layers);
if ($isnot(switches, null)) {
return bool($item(switches, at));
}
return $gt($mod($add(at, 1n), positive("no_rope_layer_interval", self.get("no_rope_layer_interval"))), 0n);
});
$c.ffn = $def("ffn", "self at", [], function (self, at) {
let copies, family, name, shared, width;

[family, name] = $tuple([self.family, $item(tables(), "experts").get(getattr(self, "family"))]);
if ($is(name, null)) {
return null;
}
if (($in(family, having("qwen experts")) && $true(self.get("num_local_experts")))) {
name = "num_local_experts";
}
if (($eq(family, "granitemoehybrid") && !$true(self.get(name)))) {
return FeedForward(self.whole("shared_intermediate_size"));
}
if (($eq(family, "nemotron_h") && $notin(self.kind(at, self.whole("num_hidden_layers")), $tuple(["moe", "mlp"])))) {
return FeedForward(0n);
}
if (!$true(self.has_experts(at))) {
name = ($eq(family, "llama4_text") ? "intermediate_size_mlp" : "intermediate_size");
return FeedForward(self.whole(name));
}
shared = null;
if ($isnot((width = $item(tables(), "shared ffn").get(family)), null)) {
shared = ($isnot(self.get(width), null) ? $or(self.whole(width), () => null) : null);
} else {
if ($in(family, having("shared experts"))) {
copies = ($true(self.get("n_shared_experts")) ? self.whole("n_shared_experts") : 0n);
shared = $or($mul(copies, self.whole("moe_intermediate_size")), () => null);
}
}
return FeedForward({__proto__: $k, experts: self.whole(name), experts_per_token: self.whole("num_experts_per_tok"), shared_d_ff: shared, shared_gate: $and($in(family, having("shared gate")), () => $isnot(shared, null)), router: ($eq(family, "llama4_text") ? "sigmoid_of_input" : $item(tables(), "routers").get(family, "softmax")), router_bias: $in(family, $tuple(["gpt_oss", "ernie4_5_moe"]))});
});
$c.has_experts = $def("has_experts", "self at", [], function (self, at) {
let first, interval, kinds, last, listed, period, step;

kinds = self.listed("mlp_layer_types");
if (($isnot(kinds, null) && $lt(at, len(kinds)))) {
return bool($eq($item(kinds, at), "sparse"));
}
if ($eq(self.family, "ernie4_5_moe")) {
[first, last] = $tuple([self.get("moe_layer_start_index"), self.get("moe_layer_end_index")]);
interval = positive("moe_layer_interval", self.get("moe_layer_interval"));
return $and($le(first, at), () => $and($or($lt(last, 0n), () => $le(at, last)), () => $eq($mod($add(at, 1n), interval), 0n)));
}
if ($eq(self.family, "nemotron_h")) {
return $eq(self.kind(at, self.whole("num_hidden_layers")), "moe");
}
if ($eq(self.family, "jamba")) {
period = positive("expert_layer_period", self.get("expert_layer_period"));
return $and($gt(self.whole("num_experts"), 1n), () => $eq($mod(at, period), self.whole("expert_layer_offset")));
}
if ($eq(self.family, "lfm2_moe")) {
return $ge(at, self.whole("num_dense_layers"));
}
if ($in(self.family, having("shared experts"))) {
return $ge(at, ($true(self.get("first_k_dense_replace")) ? self.whole("first_k_dense_replace") : 0n));
}
if ($eq(self.family, "llama4_text")) {
listed = self.listed("moe_layers");
if ($isnot(listed, null)) {
return $in(at, listed);
}
return $eq($mod($add(at, 1n), positive("interleave_moe_layer_step", self.get("interleave_moe_layer_step", 1n))), 0n);
}
if ($in(self.family, having("qwen experts"))) {
step = positive("decoder_sparse_step", self.get("decoder_sparse_step", 1n));
return $and($notin(at, $or(self.listed("mlp_only_layers"), () => [])), () => $eq($mod($add(at, 1n), step), 0n));
}
return true;
});
$c.head_dim = $def("head_dim", "self width", [], function (self, width) {
let heads;
heads = self.whole("num_attention_heads");
if ($isnot(self.get("head_dim"), null)) {
return self.whole("head_dim");
}
return (($eq(self.family, "glm4_moe") && $true($mod(width, heads))) ? $floordiv(width, heads) : null);
});
$c.kv_heads = $def("kv_heads", "self", [], function (self) {
let falcon;
if ($in(self.family, $tuple(["gpt2", "gptj", "opt", "bloom", "gpt_neox"]))) {
return null;
}
falcon = $and($eq(self.family, "falcon"), () => !$true(self.switch("new_decoder_architecture")));
if (($true(falcon) || $eq(self.family, "gpt_bigcode"))) {
return ($true(self.switch("multi_query")) ? 1n : null);
}
return ($is(self.get("num_key_value_heads"), null) ? null : self.whole("num_key_value_heads"));
});
$c.activation = $def("activation", "self", [], function (self) {
let activations, gelu, kind, name;
name = self.get("hidden_act");
if (!$true(isinstance(name, str))) {
throw ValueError(("" + "config.json must name the activation, and it gives " + $format(repr(name), ("" + ".80"))));
}
if (($eq(self.family, "gpt_oss") && $eq(name, "silu"))) {
return "clamped_swiglu";
}
kind = ($in(name, $tuple(["silu", "swish"])) ? "silu" : ($true(name.startswith("gelu")) ? "gelu" : name));
activations = dict([["silu", "swiglu"], ["gelu", "geglu"]]);
if ($in(self.family, having("plain ffn"))) {
gelu = (($eq(name, "gelu_new") && $in(self.family, $tuple(["phi", "gptj"]))) ? "gelu_new" : "gelu");
activations = dict([["silu", "silu"], ["gelu", gelu], ["relu", "relu"], ["relu2", "relu2"]]);
}
if ($notin(kind, activations)) {
throw ValueError(("" + "activation " + $format(repr(name), ("" + ".80")) + " is not known here: it must be one of " + $format(", ".join(activations), "")));
}
return $item(activations, kind);
});
$c.norms = $def("norms", "self", [], function (self) {
let count, family, repeated, sizes;

family = self.family;
sizes = dict($item(tables(), "norms and positions").get(family, dict([])));
if ($eq(family, "hyperclovax")) {
$set(sizes, "post_norm", self.switch("use_post_norm"));
}
if (($in(family, $tuple(["cohere", "glm4_moe"])) && $true(self.switch("use_qk_norm")))) {
$set(sizes, "qk_norm", ($eq(family, "cohere") ? "width" : true));
}
if (($eq(family, "granitemoehybrid") && $ne(self.get("position_embedding_type"), "rope"))) {
$set(sizes, "position", "none");
}
if (($eq(family, "stablelm") && $true(self.switch("use_parallel_residual")))) {
sizes = $union(sizes, dict([["block_norms", 1n], ["parallel", true]]));
}
if ($eq(family, "falcon")) {
if ($true(self.switch("alibi"))) {
$set(sizes, "position", "alibi");
}
if ($true(self.switch("parallel_attn"))) {
repeated = self.switch("new_decoder_architecture");
count = $or(self.get("num_ln_in_parallel_attn"), () => ($true(repeated) ? 2n : 1n));
sizes = $union(sizes, dict([["block_norms", ($eq(count, 2n) ? 2n : 1n)], ["parallel", true], ["repeated_keys", repeated]]));
}
}
return sizes;
});
$c.biases = $def("biases", "self", [], function (self) {
let attention, family, mlp, name, sizes;
family = self.family;
if (($eq(family, "opt") && $notin(self.get("word_embed_proj_dim"), $tuple([null, self.get("hidden_size")])))) {
throw ValueError("word_embed_proj_dim differs from hidden_size, and its cost is not known here");
}
if ($isnot((name = $item(tables(), "bias named").get(family)), null)) {
return dict([["bias", self.switch(name, $eq(name, "enable_bias"))]]);
}
if ($eq(family, "stablelm")) {
return dict([["qkv_bias", self.switch("use_qkv_bias")]]);
}
attention = $and($notin(family, having("no attention_bias")), () => self.switch("attention_bias"));
mlp = $or(self.switch("mlp_bias"), () => $in(family, $tuple(["gpt_neox", "gpt_oss", "gptj"])));
if (($true(self.switch("mlp_bias")) && $notin(family, having("mlp_bias")))) {
throw ValueError(("" + "mlp_bias is set, and its cost in " + $format(family, "") + " is not known here"));
}
if ($in(family, $tuple(["qwen2", "qwen2_moe"]))) {
return dict([["qkv_bias", self.switch("qkv_bias", true)]]);
}
if (($true(attention) && $true(mlp))) {
return dict([["bias", true]]);
}
sizes = ($true(attention) ? dict([["qkv_bias", true]]) : dict([]));
if (($true(attention) && ($notin(family, having("attention bias without output")) || $true(self.switch("attention_out_bias"))))) {
$set(sizes, "output_bias", true);
}
return $union(sizes, ($true(mlp) ? dict([["ffn_bias", true]]) : dict([])));
});
});
return {MOST_LISTED, from_config, text_of, shape_of_family, _listed_layers, _Settings};
};
$modules["accounting.models.defaults"] = () => {
const lru_cache = $load("functools").lru_cache;
let tables;
tables = lru_cache({__proto__: $k, maxsize: 1n})($def("tables", "", [], function () {

return read();
}));
let read;
read = () => $json("{\"aliases\": {\"kimi_k2\": \"deepseek_v3\", \"llama4\": \"llama4_text\", \"gemma3\": \"gemma3_text\", \"qwen3_vl_text\": \"qwen3\", \"qwen2_vl\": \"qwen2\", \"qwen2_vl_text\": \"qwen2\", \"qwen2_5_vl\": \"qwen2\", \"qwen2_5_vl_text\": \"qwen2\", \"qwen3_vl_moe_text\": \"qwen3_moe\", \"gemma3n\": \"gemma3n_text\", \"qwen3_5\": \"qwen3_5_text\", \"qwen3_5_moe\": \"qwen3_5_moe_text\", \"deepseek_v3_2\": \"deepseek_v32\"}, \"renamed\": {\"n_embd\": \"hidden_size\", \"n_positions\": \"max_position_embeddings\", \"n_layer\": \"num_hidden_layers\", \"n_head\": \"num_attention_heads\", \"n_inner\": \"intermediate_size\", \"ffn_dim\": \"intermediate_size\", \"ffn_hidden_size\": \"intermediate_size\", \"num_kv_heads\": \"num_key_value_heads\", \"activation_function\": \"hidden_act\", \"activation\": \"hidden_act\", \"hidden_activation\": \"hidden_act\", \"moe_num_experts\": \"n_routed_experts\", \"moe_k\": \"num_experts_per_tok\", \"moe_num_shared_experts\": \"n_shared_experts\", \"num_shared_experts\": \"n_shared_experts\", \"num_experts_per_token\": \"num_experts_per_tok\", \"model_max_length\": \"max_position_embeddings\", \"mlp_hidden_act\": \"hidden_act\", \"tie_embedding\": \"tie_word_embeddings\", \"block_ff_dim\": \"intermediate_size\", \"layers_block_type\": \"layer_types\", \"ssm_state_size\": \"mamba_d_state\", \"mamba_num_heads\": \"mamba_n_heads\", \"mamba_head_dim\": \"mamba_d_head\", \"n_groups\": \"mamba_n_groups\", \"conv_kernel\": \"mamba_d_conv\", \"use_conv_bias\": \"mamba_conv_bias\"}, \"routers\": {\"deepseek_v3\": \"sigmoid\", \"glm4_moe\": \"sigmoid\", \"dots1\": \"sigmoid\", \"solar_open\": \"sigmoid\", \"glm4_moe_lite\": \"sigmoid\", \"minimax_m2\": \"sigmoid\", \"deepseek_v32\": \"sigmoid\", \"glm_moe_dsa\": \"sigmoid\", \"kimi_linear\": \"sigmoid\", \"nemotron_h\": \"sigmoid\", \"lfm2_moe\": \"sigmoid\", \"gpt_oss\": \"softmax_of_chosen\", \"granitemoe\": \"softmax_of_chosen\", \"granitemoeshared\": \"softmax_of_chosen\", \"granitemoehybrid\": \"softmax_of_chosen\"}, \"window after\": {\"gemma2\": 2, \"gemma3_text\": 6, \"cohere2\": 4, \"olmo3\": 4, \"gpt_oss\": 2, \"exaone4\": 4, \"vaultgemma\": 2, \"gemma3n_text\": 5}, \"window before\": {\"cwm\": 4, \"granite_swa\": 4}, \"refused\": {\"add_cross_attention\": false, \"do_layer_norm_before\": true, \"layer_norm_elementwise_affine\": true, \"_remove_final_layer_norm\": false, \"qk_layernorm\": false, \"lm_head_bias\": false}, \"nemotron\": {\"M\": \"linear_attention\", \"E\": \"moe\", \"*\": \"full_attention\", \"-\": \"mlp\"}, \"other layers\": {\"full_attention\": \"full_attention\", \"sliding_attention\": \"sliding_attention\", \"chunked_attention\": \"chunked_attention\", \"linear_attention\": \"linear_attention\", \"mamba\": \"linear_attention\", \"conv\": \"linear_attention\", \"attention\": \"full_attention\", \"indexed_attention\": \"full_attention\", \"moe\": \"moe\", \"mlp\": \"mlp\"}, \"gguf settings\": {\"block_count\": \"num_hidden_layers\", \"embedding_length\": \"hidden_size\", \"context_length\": \"n_positions\", \"feed_forward_length\": \"intermediate_size\", \"attention.head_count\": \"num_attention_heads\", \"attention.head_count_kv\": \"num_key_value_heads\", \"attention.key_length\": \"head_dim\", \"attention.sliding_window\": \"sliding_window\", \"expert_used_count\": \"num_experts_per_tok\", \"expert_count\": \"num_local_experts\", \"expert_feed_forward_length\": \"moe_intermediate_size\"}, \"gguf families\": {\"qwen3moe\": \"qwen3_moe\", \"gemma3\": \"gemma3_text\", \"gptneox\": \"gpt_neox\", \"qwen2moe\": \"qwen2_moe\"}, \"gguf types\": {\"0\": [\"F32\", 1, 4], \"1\": [\"F16\", 1, 2], \"2\": [\"Q4_0\", 32, 18], \"3\": [\"Q4_1\", 32, 20], \"6\": [\"Q5_0\", 32, 22], \"7\": [\"Q5_1\", 32, 24], \"8\": [\"Q8_0\", 32, 34], \"10\": [\"Q2_K\", 256, 84], \"11\": [\"Q3_K\", 256, 110], \"12\": [\"Q4_K\", 256, 144], \"13\": [\"Q5_K\", 256, 176], \"14\": [\"Q6_K\", 256, 210], \"20\": [\"IQ4_NL\", 32, 18], \"23\": [\"IQ4_XS\", 256, 136], \"30\": [\"BF16\", 1, 2], \"39\": [\"MXFP4\", 32, 17]}, \"experts\": {\"mixtral\": \"num_local_experts\", \"olmoe\": \"num_experts\", \"gpt_oss\": \"num_local_experts\", \"llama4_text\": \"num_local_experts\", \"granitemoe\": \"num_local_experts\", \"granitemoeshared\": \"num_local_experts\", \"flex_olmo\": \"num_experts\", \"phimoe\": \"num_local_experts\", \"minimax\": \"num_local_experts\", \"minimax_m2\": \"num_local_experts\", \"mellum\": \"num_local_experts\", \"granitemoehybrid\": \"num_local_experts\", \"jamba\": \"num_experts\", \"lfm2_moe\": \"num_experts\", \"glm4_moe\": \"n_routed_experts\", \"deepseek_v2\": \"n_routed_experts\", \"deepseek_v3\": \"n_routed_experts\", \"dots1\": \"n_routed_experts\", \"solar_open\": \"n_routed_experts\", \"ernie4_5_moe\": \"n_routed_experts\", \"glm4_moe_lite\": \"n_routed_experts\", \"deepseek_v32\": \"n_routed_experts\", \"glm_moe_dsa\": \"n_routed_experts\", \"kimi_linear\": \"n_routed_experts\", \"nemotron_h\": \"n_routed_experts\", \"qwen2_moe\": \"num_experts\", \"qwen3_moe\": \"num_experts\", \"qwen3_next\": \"num_experts\", \"qwen3_5_moe_text\": \"num_experts\"}, \"bias named\": {\"gpt2\": \"enable_bias\", \"gpt_bigcode\": \"enable_bias\", \"phi\": \"enable_bias\", \"bloom\": \"enable_bias\", \"opt\": \"enable_bias\", \"falcon\": \"bias\", \"starcoder2\": \"use_bias\", \"ernie4_5\": \"use_bias\", \"ernie4_5_moe\": \"use_bias\"}, \"shared ffn\": {\"qwen2_moe\": \"shared_expert_intermediate_size\", \"qwen3_next\": \"shared_expert_intermediate_size\", \"qwen3_5_moe_text\": \"shared_expert_intermediate_size\", \"nemotron_h\": \"moe_shared_expert_intermediate_size\", \"granitemoeshared\": \"shared_intermediate_size\", \"granitemoehybrid\": \"shared_intermediate_size\", \"llama4_text\": \"intermediate_size\"}, \"norms and positions\": {\"bamba\": {\"position\": \"rope\"}, \"bloom\": {\"norm\": \"layernorm\", \"norm_bias\": true, \"position\": \"alibi\", \"embedding_norm\": true}, \"cohere\": {\"norm\": \"layernorm\", \"norm_bias\": false, \"block_norms\": 1, \"parallel\": true}, \"cohere2\": {\"norm\": \"layernorm\", \"norm_bias\": false, \"block_norms\": 1, \"parallel\": true}, \"dots1\": {\"qk_norm\": true}, \"exaone4\": {\"qk_norm\": true, \"block_norms\": 2}, \"falcon\": {\"norm\": \"layernorm\", \"norm_bias\": true}, \"flex_olmo\": {\"qk_norm\": \"width\"}, \"gemma2\": {\"post_norm\": true}, \"gemma3_text\": {\"qk_norm\": true, \"post_norm\": true}, \"gemma3n_text\": {\"qk_norm\": true, \"post_norm\": true}, \"glm4\": {\"post_norm\": true}, \"gpt2\": {\"norm\": \"layernorm\", \"position\": \"learned\"}, \"gpt_bigcode\": {\"norm\": \"layernorm\", \"position\": \"learned\"}, \"gpt_neox\": {\"norm\": \"layernorm\", \"norm_bias\": true}, \"gptj\": {\"norm\": \"layernorm\", \"norm_bias\": true, \"head_bias\": true, \"block_norms\": 1, \"parallel\": true}, \"hunyuan_v1_dense\": {\"qk_norm\": true}, \"jais2\": {\"norm\": \"layernorm\", \"norm_bias\": true}, \"jamba\": {\"position\": \"none\"}, \"lfm2\": {\"qk_norm\": true}, \"lfm2_moe\": {\"qk_norm\": true}, \"mellum\": {\"qk_norm\": true}, \"minimax_m2\": {\"qk_norm\": \"width\"}, \"nanochat\": {\"norm_weights\": false, \"qk_norm\": \"l2\", \"embedding_norm\": true}, \"nemotron\": {\"norm\": \"layernorm\", \"norm_bias\": true}, \"nemotron_h\": {\"position\": \"none\", \"block_norms\": 1}, \"olmo\": {\"norm\": \"layernorm\", \"norm_bias\": true, \"norm_weights\": false}, \"olmo2\": {\"qk_norm\": \"width\"}, \"olmo3\": {\"qk_norm\": \"width\"}, \"olmo_hybrid\": {\"qk_norm\": \"width\"}, \"olmoe\": {\"qk_norm\": \"width\"}, \"opt\": {\"norm\": \"layernorm\", \"norm_bias\": true, \"position\": \"learned\", \"extra_positions\": 2}, \"phi\": {\"norm\": \"layernorm\", \"norm_bias\": true, \"head_bias\": true, \"block_norms\": 1, \"parallel\": true}, \"phimoe\": {\"norm\": \"layernorm\", \"norm_bias\": true}, \"qwen3\": {\"qk_norm\": true}, \"qwen3_5_moe_text\": {\"qk_norm\": true}, \"qwen3_5_text\": {\"qk_norm\": true}, \"qwen3_moe\": {\"qk_norm\": true}, \"qwen3_next\": {\"qk_norm\": true}, \"stablelm\": {\"norm\": \"layernorm\", \"norm_bias\": true}, \"starcoder2\": {\"norm\": \"layernorm\", \"norm_bias\": true}}, \"families with\": {\"own ffn name\": [\"gpt2\", \"gptj\", \"gpt_bigcode\", \"opt\", \"bloom\", \"falcon\"], \"plain ffn\": [\"gpt2\", \"starcoder2\", \"gpt_neox\", \"opt\", \"bloom\", \"falcon\", \"arcee\", \"jais2\", \"nemotron\", \"phi\", \"gptj\", \"gpt_bigcode\", \"nanochat\", \"nemotron_h\"], \"attention bias without output\": [\"glm\", \"glm4\", \"glm4_moe\", \"seed_oss\"], \"no attention_bias\": [\"mistral\", \"mixtral\", \"qwen2\", \"qwen2_moe\", \"phi3\", \"starcoder2\", \"opt\", \"bloom\", \"falcon\", \"gpt2\", \"cwm\", \"ministral\", \"ministral3\", \"exaone4\", \"minimax_m2\", \"stablelm\", \"ernie4_5\", \"ernie4_5_moe\"], \"mlp_bias\": [\"llama\", \"granite\", \"smollm3\", \"arcee\", \"cwm\", \"helium\", \"hyperclovax\", \"iquestcoder\", \"internlm3\", \"jais2\", \"nemotron\", \"seed_oss\", \"granite_swa\"], \"latent attention\": [\"deepseek_v32\", \"glm_moe_dsa\", \"kimi_linear\", \"deepseek_v2\", \"deepseek_v3\", \"glm4_moe_lite\", \"youtu\"], \"shared experts\": [\"glm4_moe\", \"deepseek_v2\", \"deepseek_v3\", \"dots1\", \"solar_open\", \"ernie4_5_moe\", \"glm4_moe_lite\", \"deepseek_v32\", \"glm_moe_dsa\", \"kimi_linear\", \"nemotron_h\"], \"gated delta\": [\"qwen3_next\", \"qwen3_5_text\", \"qwen3_5_moe_text\"], \"qwen experts\": [\"qwen2_moe\", \"qwen3_moe\", \"qwen3_next\", \"qwen3_5_moe_text\"], \"shared gate\": [\"qwen2_moe\", \"qwen3_next\", \"qwen3_5_moe_text\"]}, \"defaults\": {\"llama\": {\"vocab_size\": 32000, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\"}, \"mistral\": {\"vocab_size\": 32000, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"sliding_window\": 4096}, \"mixtral\": {\"vocab_size\": 32000, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2}, \"qwen2\": {\"vocab_size\": 151936, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"intermediate_size\": 22016, \"hidden_act\": \"silu\", \"sliding_window\": 4096, \"max_window_layers\": 28}, \"qwen3\": {\"vocab_size\": 151936, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"intermediate_size\": 22016, \"hidden_act\": \"silu\", \"sliding_window\": 4096, \"max_window_layers\": 28, \"head_dim\": 128}, \"qwen2_moe\": {\"vocab_size\": 151936, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 24, \"hidden_size\": 2048, \"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"intermediate_size\": 5632, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1408, \"num_experts\": 60, \"num_experts_per_tok\": 4, \"qkv_bias\": true, \"shared_expert_intermediate_size\": 5632, \"sliding_window\": 4096, \"max_window_layers\": 28}, \"qwen3_moe\": {\"vocab_size\": 151936, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 24, \"hidden_size\": 2048, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"intermediate_size\": 6144, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 768, \"num_experts\": 128, \"num_experts_per_tok\": 8, \"sliding_window\": 4096}, \"qwen3_next\": {\"vocab_size\": 151936, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 48, \"hidden_size\": 2048, \"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"intermediate_size\": 5632, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 512, \"num_experts\": 512, \"num_experts_per_tok\": 10, \"head_dim\": 256, \"shared_expert_intermediate_size\": 512, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4}, \"gemma\": {\"vocab_size\": 256000, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 28, \"hidden_size\": 3072, \"num_attention_heads\": 16, \"num_key_value_heads\": 16, \"intermediate_size\": 24576, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_pytorch_tanh\", \"head_dim\": 256}, \"gemma2\": {\"vocab_size\": 256000, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 26, \"hidden_size\": 2304, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 9216, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_pytorch_tanh\", \"head_dim\": 256, \"sliding_window\": 4096}, \"gemma3_text\": {\"vocab_size\": 262208, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 26, \"hidden_size\": 2304, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 9216, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_pytorch_tanh\", \"head_dim\": 256, \"sliding_window\": 4096}, \"phi3\": {\"vocab_size\": 32064, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 32, \"hidden_size\": 3072, \"num_attention_heads\": 32, \"intermediate_size\": 8192, \"hidden_act\": \"silu\"}, \"olmo2\": {\"vocab_size\": 50304, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\"}, \"olmo3\": {\"vocab_size\": 50304, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"sliding_window\": 4096}, \"olmoe\": {\"vocab_size\": 50304, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 16, \"hidden_size\": 2048, \"num_attention_heads\": 16, \"intermediate_size\": 2048, \"hidden_act\": \"silu\", \"num_experts\": 64, \"num_experts_per_tok\": 8}, \"smollm3\": {\"vocab_size\": 128256, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 36, \"hidden_size\": 2048, \"num_attention_heads\": 16, \"num_key_value_heads\": 4, \"intermediate_size\": 11008, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"no_rope_layer_interval\": 4}, \"glm\": {\"vocab_size\": 151552, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 40, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 2, \"intermediate_size\": 13696, \"hidden_act\": \"silu\", \"head_dim\": 128, \"attention_bias\": true}, \"glm4\": {\"vocab_size\": 151552, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 40, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 2, \"intermediate_size\": 13696, \"hidden_act\": \"silu\", \"head_dim\": 128, \"attention_bias\": true}, \"glm4_moe\": {\"vocab_size\": 151552, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 46, \"hidden_size\": 4096, \"num_attention_heads\": 96, \"num_key_value_heads\": 8, \"intermediate_size\": 10944, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1408, \"n_routed_experts\": 128, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1}, \"cohere\": {\"vocab_size\": 256000, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 40, \"hidden_size\": 8192, \"num_attention_heads\": 64, \"intermediate_size\": 22528, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\"}, \"cohere2\": {\"vocab_size\": 256000, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 40, \"hidden_size\": 8192, \"num_attention_heads\": 64, \"intermediate_size\": 22528, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"sliding_window\": 4096}, \"granite\": {\"vocab_size\": 32000, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\"}, \"starcoder2\": {\"vocab_size\": 49152, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 30, \"hidden_size\": 3072, \"num_attention_heads\": 24, \"num_key_value_heads\": 2, \"intermediate_size\": 12288, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_pytorch_tanh\", \"use_bias\": true}, \"gpt_neox\": {\"vocab_size\": 50432, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 44, \"hidden_size\": 6144, \"num_attention_heads\": 64, \"intermediate_size\": 24576, \"hidden_act\": \"gelu\", \"attention_bias\": true}, \"opt\": {\"vocab_size\": 50272, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 12, \"hidden_size\": 768, \"num_attention_heads\": 12, \"intermediate_size\": 3072, \"tie_word_embeddings\": true, \"hidden_act\": \"relu\"}, \"bloom\": {\"vocab_size\": 250880, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 8, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu\"}, \"falcon\": {\"vocab_size\": 65024, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4544, \"num_attention_heads\": 71, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu\", \"multi_query\": true, \"parallel_attn\": true}, \"deepseek_v2\": {\"vocab_size\": 102400, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1407, \"n_routed_experts\": 64, \"n_shared_experts\": 2, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 128, \"v_head_dim\": 128}, \"deepseek_v3\": {\"vocab_size\": 129280, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 61, \"hidden_size\": 7168, \"num_attention_heads\": 128, \"intermediate_size\": 18432, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 2048, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 128, \"v_head_dim\": 128, \"n_shared_experts\": 1, \"first_k_dense_replace\": 3}, \"gpt_oss\": {\"vocab_size\": 201088, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 36, \"hidden_size\": 2880, \"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"intermediate_size\": 2880, \"hidden_act\": \"silu\", \"num_local_experts\": 128, \"num_experts_per_tok\": 4, \"head_dim\": 64, \"sliding_window\": 128, \"attention_bias\": true}, \"llama4_text\": {\"vocab_size\": 202048, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 48, \"hidden_size\": 5120, \"num_attention_heads\": 40, \"num_key_value_heads\": 8, \"intermediate_size\": 8192, \"hidden_act\": \"silu\", \"num_local_experts\": 16, \"num_experts_per_tok\": 1, \"head_dim\": 128, \"intermediate_size_mlp\": 16384, \"use_qk_norm\": true, \"no_rope_layer_interval\": 4, \"attention_chunk_size\": 8192}, \"gpt2\": {\"vocab_size\": 50257, \"max_position_embeddings\": 1024, \"num_hidden_layers\": 12, \"hidden_size\": 768, \"num_attention_heads\": 12, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_new\"}, \"arcee\": {\"vocab_size\": 32000, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 32, \"hidden_size\": 2560, \"num_attention_heads\": 32, \"intermediate_size\": 18432, \"hidden_act\": \"relu2\"}, \"seed_oss\": {\"vocab_size\": 155136, \"max_position_embeddings\": 524288, \"num_hidden_layers\": 64, \"hidden_size\": 4096, \"num_attention_heads\": 80, \"num_key_value_heads\": 8, \"intermediate_size\": 27648, \"hidden_act\": \"silu\", \"head_dim\": 128, \"attention_bias\": true}, \"ernie4_5\": {\"vocab_size\": 103424, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 18, \"hidden_size\": 1024, \"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"intermediate_size\": 3072, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"head_dim\": 128}, \"ministral\": {\"vocab_size\": 32000, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"sliding_window\": 4096}, \"ministral3\": {\"vocab_size\": 131072, \"max_position_embeddings\": 262144, \"num_hidden_layers\": 34, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"head_dim\": 128}, \"helium\": {\"vocab_size\": 48000, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 24, \"hidden_size\": 2560, \"num_attention_heads\": 20, \"num_key_value_heads\": 20, \"intermediate_size\": 7040, \"hidden_act\": \"silu\", \"head_dim\": 128}, \"hunyuan_v1_dense\": {\"vocab_size\": 290943, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\"}, \"iquestcoder\": {\"vocab_size\": 76800, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 80, \"hidden_size\": 5120, \"num_attention_heads\": 40, \"num_key_value_heads\": 8, \"intermediate_size\": 27648, \"hidden_act\": \"silu\", \"head_dim\": 128}, \"internlm3\": {\"vocab_size\": 128512, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 48, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 2, \"intermediate_size\": 10240, \"hidden_act\": \"silu\", \"head_dim\": 128}, \"hyperclovax\": {\"vocab_size\": 32000, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"use_post_norm\": true}, \"stablelm\": {\"vocab_size\": 50304, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 32, \"hidden_size\": 2560, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"intermediate_size\": 6912, \"hidden_act\": \"silu\"}, \"cwm\": {\"vocab_size\": 128256, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 64, \"hidden_size\": 6144, \"num_attention_heads\": 48, \"num_key_value_heads\": 8, \"intermediate_size\": 21504, \"hidden_act\": \"silu\", \"head_dim\": 128, \"sliding_window\": 8192}, \"exaone4\": {\"vocab_size\": 102400, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"intermediate_size\": 16384, \"hidden_act\": \"silu\", \"sliding_window\": 4096}, \"vaultgemma\": {\"vocab_size\": 256000, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 26, \"hidden_size\": 2304, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 9216, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_pytorch_tanh\", \"head_dim\": 256, \"sliding_window\": 4096}, \"granite_swa\": {\"vocab_size\": 100352, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 24, \"hidden_size\": 2560, \"num_attention_heads\": 20, \"num_key_value_heads\": 4, \"intermediate_size\": 8192, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"sliding_window\": 128}, \"jais2\": {\"vocab_size\": 150272, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 32, \"hidden_size\": 3328, \"num_attention_heads\": 26, \"intermediate_size\": 26624, \"hidden_act\": \"relu2\", \"head_dim\": 128, \"attention_bias\": true, \"mlp_bias\": true}, \"nemotron\": {\"vocab_size\": 256000, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 32, \"hidden_size\": 6144, \"num_attention_heads\": 48, \"intermediate_size\": 24576, \"hidden_act\": \"relu2\"}, \"granitemoe\": {\"vocab_size\": 32000, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2}, \"granitemoeshared\": {\"vocab_size\": 32000, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2}, \"flex_olmo\": {\"vocab_size\": 100352, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"num_experts\": 7, \"num_experts_per_tok\": 5}, \"phimoe\": {\"vocab_size\": 32064, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 6400, \"hidden_act\": \"silu\", \"num_local_experts\": 16, \"num_experts_per_tok\": 2}, \"minimax_m2\": {\"vocab_size\": 200064, \"max_position_embeddings\": 196608, \"num_hidden_layers\": 62, \"hidden_size\": 3072, \"num_attention_heads\": 48, \"num_key_value_heads\": 8, \"intermediate_size\": 1536, \"hidden_act\": \"silu\", \"head_dim\": 128, \"num_local_experts\": 256, \"num_experts_per_tok\": 8}, \"mellum\": {\"vocab_size\": 98304, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 28, \"hidden_size\": 2304, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"intermediate_size\": 7168, \"hidden_act\": \"silu\", \"head_dim\": 128, \"num_local_experts\": 64, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 896, \"sliding_window\": 1024}, \"dots1\": {\"vocab_size\": 152064, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 62, \"hidden_size\": 4608, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"intermediate_size\": 10944, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 0}, \"solar_open\": {\"vocab_size\": 196608, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 48, \"hidden_size\": 4096, \"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"hidden_act\": \"silu\", \"head_dim\": 128, \"moe_intermediate_size\": 1280, \"n_routed_experts\": 128, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1}, \"ernie4_5_moe\": {\"vocab_size\": 103424, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 28, \"hidden_size\": 2560, \"num_attention_heads\": 20, \"num_key_value_heads\": 4, \"intermediate_size\": 12288, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1536, \"n_routed_experts\": 64, \"num_experts_per_tok\": 6, \"n_shared_experts\": 2, \"moe_layer_start_index\": 1, \"moe_layer_end_index\": -1, \"moe_layer_interval\": 1}, \"nanochat\": {\"vocab_size\": 50304, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 12, \"hidden_size\": 768, \"num_attention_heads\": 6, \"num_key_value_heads\": 6, \"intermediate_size\": 8192, \"hidden_act\": \"relu2\"}, \"olmo\": {\"vocab_size\": 50304, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\"}, \"phi\": {\"vocab_size\": 51200, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 24, \"hidden_size\": 2048, \"num_attention_heads\": 32, \"intermediate_size\": 8192, \"hidden_act\": \"gelu_new\"}, \"gptj\": {\"vocab_size\": 50400, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 28, \"hidden_size\": 4096, \"num_attention_heads\": 16, \"hidden_act\": \"gelu_new\"}, \"gpt_bigcode\": {\"vocab_size\": 50257, \"max_position_embeddings\": 1024, \"num_hidden_layers\": 12, \"hidden_size\": 768, \"num_attention_heads\": 12, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_pytorch_tanh\", \"multi_query\": true}, \"qwen3_5_text\": {\"vocab_size\": 248320, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 16, \"num_key_value_heads\": 4, \"intermediate_size\": 12288, \"hidden_act\": \"silu\", \"head_dim\": 256, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4}, \"qwen3_5_moe_text\": {\"vocab_size\": 248320, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 40, \"hidden_size\": 2048, \"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 512, \"num_experts\": 256, \"num_experts_per_tok\": 8, \"head_dim\": 256, \"shared_expert_intermediate_size\": 512, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4}, \"olmo_hybrid\": {\"vocab_size\": 100352, \"max_position_embeddings\": 65536, \"num_hidden_layers\": 32, \"hidden_size\": 3840, \"num_attention_heads\": 30, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"linear_num_key_heads\": 30, \"linear_num_value_heads\": 30, \"linear_key_head_dim\": 96, \"linear_value_head_dim\": 192, \"linear_conv_kernel_dim\": 4}, \"kimi_linear\": {\"vocab_size\": 163840, \"max_position_embeddings\": 1048576, \"num_hidden_layers\": 27, \"hidden_size\": 2304, \"num_attention_heads\": 32, \"intermediate_size\": 9216, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1024, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 128, \"v_head_dim\": 128, \"first_k_dense_replace\": 1, \"linear_num_heads\": 32, \"linear_head_dim\": 128, \"linear_conv_kernel_dim\": 4}, \"minimax\": {\"vocab_size\": 32000, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2}, \"deepseek_v32\": {\"vocab_size\": 129280, \"max_position_embeddings\": 163840, \"num_hidden_layers\": 61, \"hidden_size\": 7168, \"num_attention_heads\": 128, \"intermediate_size\": 18432, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 2048, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 128, \"v_head_dim\": 128, \"n_shared_experts\": 1, \"first_k_dense_replace\": 3, \"index_n_heads\": 64, \"index_head_dim\": 128, \"index_topk\": 2048}, \"glm_moe_dsa\": {\"vocab_size\": 154880, \"max_position_embeddings\": 202752, \"num_hidden_layers\": 78, \"hidden_size\": 6144, \"num_attention_heads\": 64, \"intermediate_size\": 12288, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 2048, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"q_lora_rank\": 2048, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 192, \"v_head_dim\": 256, \"first_k_dense_replace\": 3, \"index_n_heads\": 32, \"index_head_dim\": 128, \"index_topk\": 2048}, \"lfm2\": {\"vocab_size\": 65536, \"max_position_embeddings\": 128000, \"num_hidden_layers\": 32, \"hidden_size\": 2560, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 12288, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"conv_L_cache\": 3}, \"lfm2_moe\": {\"vocab_size\": 65536, \"max_position_embeddings\": 128000, \"num_hidden_layers\": 32, \"hidden_size\": 2048, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 7168, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1792, \"num_experts\": 32, \"num_experts_per_tok\": 4, \"num_dense_layers\": 2, \"conv_L_cache\": 3}, \"bamba\": {\"vocab_size\": 128000, \"max_position_embeddings\": 262144, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"mamba_n_heads\": 128, \"mamba_d_head\": \"auto\", \"mamba_n_groups\": 1, \"mamba_d_state\": 256, \"mamba_d_conv\": 4, \"mamba_expand\": 2, \"mamba_conv_bias\": true}, \"granitemoehybrid\": {\"vocab_size\": 32000, \"max_position_embeddings\": 2048, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"intermediate_size\": 11008, \"hidden_act\": \"silu\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"shared_intermediate_size\": 1024, \"mamba_n_heads\": 128, \"mamba_d_head\": \"auto\", \"mamba_n_groups\": 1, \"mamba_d_state\": 256, \"mamba_d_conv\": 4, \"mamba_expand\": 2, \"mamba_conv_bias\": true}, \"falcon_h1\": {\"vocab_size\": 128000, \"max_position_embeddings\": 8192, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"mamba_n_heads\": 128, \"mamba_d_head\": \"auto\", \"mamba_n_groups\": 1, \"mamba_d_state\": 256, \"mamba_d_conv\": 4, \"mamba_expand\": 2, \"mamba_conv_bias\": true, \"mamba_d_ssm\": 1024}, \"jamba\": {\"vocab_size\": 65536, \"max_position_embeddings\": 262144, \"num_hidden_layers\": 32, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"num_experts\": 16, \"num_experts_per_tok\": 2, \"expert_layer_period\": 2, \"expert_layer_offset\": 1, \"attn_layer_period\": 8, \"attn_layer_offset\": 4, \"mamba_d_state\": 16, \"mamba_d_conv\": 4, \"mamba_expand\": 2, \"mamba_dt_rank\": \"auto\", \"mamba_conv_bias\": true}, \"nemotron_h\": {\"vocab_size\": 131072, \"max_position_embeddings\": 4096, \"num_hidden_layers\": 4, \"hidden_size\": 4096, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"intermediate_size\": 21504, \"hidden_act\": \"relu2\", \"head_dim\": 128, \"moe_intermediate_size\": 7688, \"n_routed_experts\": 8, \"n_shared_experts\": 1, \"moe_shared_expert_intermediate_size\": 7688, \"num_experts_per_tok\": 2, \"mamba_d_state\": 128, \"mamba_n_heads\": 128, \"mamba_d_head\": 64, \"mamba_n_groups\": 8, \"mamba_d_conv\": 4, \"mamba_conv_bias\": true}, \"gemma3n_text\": {\"vocab_size\": 262400, \"max_position_embeddings\": 32768, \"num_hidden_layers\": 35, \"hidden_size\": 2048, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"intermediate_size\": 16384, \"tie_word_embeddings\": true, \"hidden_act\": \"gelu_pytorch_tanh\", \"head_dim\": 256, \"sliding_window\": 512, \"vocab_size_per_layer_input\": 262144, \"laurel_rank\": 64, \"hidden_size_per_layer_input\": 256, \"altup_num_inputs\": 4, \"num_kv_shared_layers\": 15}, \"youtu\": {\"vocab_size\": 128256, \"max_position_embeddings\": 131072, \"num_hidden_layers\": 32, \"hidden_size\": 2048, \"num_attention_heads\": 16, \"intermediate_size\": 6144, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 128, \"v_head_dim\": 128}, \"glm4_moe_lite\": {\"vocab_size\": 154880, \"max_position_embeddings\": 202752, \"num_hidden_layers\": 47, \"hidden_size\": 2048, \"num_attention_heads\": 20, \"intermediate_size\": 10240, \"hidden_act\": \"silu\", \"moe_intermediate_size\": 1536, \"n_routed_experts\": 64, \"num_experts_per_tok\": 4, \"n_shared_experts\": 1, \"q_lora_rank\": 768, \"kv_lora_rank\": 512, \"qk_rope_head_dim\": 64, \"qk_nope_head_dim\": 192, \"v_head_dim\": 256, \"first_k_dense_replace\": 1}}}");
let defaults;
defaults = $def("defaults", "", [], function () {

return dict($item(tables(), "defaults"));
});
let having;
having = $def("having", "part", [], function (part) {

return list($item($item(tables(), "families with"), part));
});
return {tables, read, defaults, having};
};
$modules["accounting.models.mixers"] = () => {
const Mixer = $load("accounting.layer").Mixer;
const Symbol = $load("accounting.formula").Symbol;
let NOTHING;
NOTHING = Mixer("nothing");
let delta;
delta = $def("delta", "key_heads value_heads key_dim value_dim kernel * merged=", [true], function (key_heads, value_heads, key_dim, value_dim, kernel, merged) {
let convolved, heads, keys, matrices, mixed, state, values, vectors, width;

if ($true($mod(value_heads, key_heads))) {
throw ValueError(("" + "expected value_heads a multiple of key_heads " + $format(key_heads, "") + ", got " + $format(value_heads, "")));
}
[heads, width] = $tuple([Symbol("value_heads", value_heads), Symbol("value_dim", value_dim)]);
keys = $mul(Symbol("key_heads", key_heads), Symbol("key_dim", key_dim));
[values, mixed] = $tuple([$mul(heads, width), $add($mul(2n, keys), $mul(heads, width))]);
matrices = [$tuple(["query, key, value, gate", null, $add(mixed, values)]), $tuple(["decay and strength", null, $mul(2n, heads)])];
if (!$true(merged)) {
matrices = [$tuple(["query, key, value", null, mixed]), $tuple(["gate", null, values])];
matrices = $add(matrices, [...(function* ($first) { for (const name of $first) yield $tuple([name, null, heads]); })($tuple(["decay", "strength"]))]);
}
[convolved, state] = $tuple([$mul(mixed, Symbol("kernel", kernel)), $mul(values, Symbol("key_dim", key_dim))]);
matrices.append($tuple(["output", values, null]));
vectors = $tuple([convolved, heads, heads]);
return Mixer("delta rule", tuple(matrices), vectors, $tuple([width]), state, {__proto__: $k, newest: convolved, flops: $mul(6n, state)});
});
let kimi_delta;
kimi_delta = $def("kimi_delta", "heads width kernel", [], function (heads, width, kernel) {
let convolved, each, inner, matrices, narrow, state, vectors;

[each, narrow] = $tuple([Symbol("value_heads", heads), Symbol("value_dim", width)]);
inner = $mul(each, narrow);
matrices = [...(function* ($first) { for (const name of $first) yield $tuple([name, null, inner]); })($tuple(["query", "key", "value"]))];
matrices = $add(matrices, [...(function* ($first) { for (const name of $first) yield $tuple([("" + $format(name, "") + " down"), null, narrow]); })($tuple(["decay", "gate"]))]);
matrices = $add(matrices, [...(function* ($first) { for (const name of $first) yield $tuple([("" + $format(name, "") + " up"), narrow, inner]); })($tuple(["decay", "gate"]))]);
matrices = $add(matrices, [$tuple(["strength", null, each]), $tuple(["output", inner, null])]);
[convolved, state] = $tuple([$mul($mul(3n, inner), Symbol("kernel", kernel)), $mul(inner, narrow)]);
vectors = $tuple([convolved, inner, each]);
return Mixer("delta rule", tuple(matrices), vectors, $tuple([narrow]), state, {__proto__: $k, newest: convolved, flops: $mul(6n, state)});
});
let mamba2;
mamba2 = $def("mamba2", "*sizes convolution_bias norm", [], function (sizes, convolution_bias, norm) {
let convolved, each, groups, heads, inner, kernel, matrices, mixed, norms, of_state, state, vectors, width;

[heads, width, state, groups, kernel] = sizes;
[inner, each] = $tuple([$mul(Symbol("state_heads", heads), Symbol("state_width", width)), Symbol("state_heads", heads)]);
mixed = $add(inner, $mul(2n, $mul(Symbol("groups", groups), Symbol("state_dim", state))));
[convolved, of_state] = $tuple([$mul(mixed, Symbol("kernel", kernel)), $mul(inner, Symbol("state_dim", state))]);
matrices = $tuple([$tuple(["state in", null, $add($add(inner, mixed), each)]), $tuple(["output", inner, null])]);
vectors = $tuple([convolved, ...($true(convolution_bias) ? [mixed] : []), each, each, each]);
norms = ($true(norm) ? $tuple([inner]) : $tuple([]));
return Mixer("mamba state", matrices, vectors, norms, of_state, {__proto__: $k, newest: convolved, flops: $mul(4n, of_state)});
});
let mamba;
mamba = $def("mamba", "inner state rank kernel * convolution_bias norms", [], function (inner, state, rank, kernel, convolution_bias, norms) {
let channels, convolved, low, matrices, of_state, vectors, weights, width;

[channels, width, low] = $tuple([Symbol("channels", inner), Symbol("state_dim", state), Symbol("step_rank", rank)]);
[of_state, convolved] = $tuple([$mul(channels, width), $mul(channels, Symbol("kernel", kernel))]);
matrices = $tuple([$tuple(["state in", null, $mul(2n, channels)]), $tuple(["step, key and query", channels, $add(low, $mul(2n, width))]), $tuple(["step up", low, channels]), $tuple(["output", channels, null])]);
vectors = $tuple([of_state, channels, channels, convolved, ...($true(convolution_bias) ? [channels] : [])]);
weights = ($true(norms) ? $tuple([low, width, width]) : $tuple([]));
return Mixer("mamba state", matrices, vectors, weights, of_state, {__proto__: $k, newest: convolved, flops: $mul(4n, of_state)});
});
let short_convolution;
short_convolution = $def("short_convolution", "width kernel * bias", [], function (width, kernel, bias) {
let convolved, d, matrices;

d = Symbol("d_model", width);
convolved = $mul(d, Symbol("kernel", kernel));
matrices = $tuple([$tuple(["convolution in", null, $mul(3n, d)]), $tuple(["output", null, null])]);
return Mixer("convolution", matrices, $tuple([convolved, ...($true(bias) ? $tuple([d, $mul(3n, d), d]) : $tuple([]))]), {__proto__: $k, newest: convolved});
});
let lightning;
lightning = $def("lightning", "heads width", [], function (heads, width) {
let inner, matrices, state;

inner = $mul(Symbol("value_heads", heads), Symbol("value_dim", width));
state = $mul(inner, Symbol("value_dim", width));
matrices = $tuple([$tuple(["query, key, value", null, $mul(3n, inner)]), $tuple(["gate", null, inner]), $tuple(["output", inner, null])]);
return Mixer("lightning state", matrices, $tuple([]), $tuple([inner]), {__proto__: $k, state: state, flops: $mul(4n, state)});
});
return {NOTHING, delta, kimi_delta, mamba2, mamba, short_convolution, lightning};
};
$modules["accounting.models.published"] = () => {
const Attention = $load("accounting.layer").Attention;
const FeedForward = $load("accounting.layer").FeedForward;
const LatentAttention = $load("accounting.layer").LatentAttention;
const Layer = $load("accounting.layer").Layer;
const TransformerShape = $load("accounting.shape").TransformerShape;
let _GPT2;
_GPT2 = dict([["gpt2", $tuple([12n, 768n, 12n])], ["gpt2-medium", $tuple([24n, 1024n, 16n])], ["gpt2-large", $tuple([36n, 1280n, 20n])], ["gpt2-xl", $tuple([48n, 1600n, 25n])]]);
let _GPT2_BLOCK;
_GPT2_BLOCK = dict([["ffn", "gelu"], ["norm", "layernorm"], ["position", "learned"], ["tied_embeddings", true], ["bias", true]]);
let _DEEPSEEK;
_DEEPSEEK = LatentAttention({__proto__: $k, q_rank: 1536n, kv_rank: 512n, nope_dim: 128n, rope_dim: 64n, value_dim: 128n});
let _DEEPSEEK_FFN;
_DEEPSEEK_FFN = FeedForward({__proto__: $k, experts: 256n, experts_per_token: 8n, shared_d_ff: 2048n, router: "sigmoid"});
let _SCOUT_FFN;
_SCOUT_FFN = FeedForward({__proto__: $k, experts: 16n, experts_per_token: 1n, shared_d_ff: 8192n, router: "sigmoid_of_input"});
let _SCOUT_LAYERS;
_SCOUT_LAYERS = $tuple([...$mul(3n, $tuple([Layer(Attention(8192n, {__proto__: $k, chunked: true, qk_norm: "l2"}), _SCOUT_FFN)])), Layer(Attention({__proto__: $k, rotated: false}), _SCOUT_FFN)]);
let _GEMMA;
_GEMMA = dict([["head_dim", 256n], ["ffn", "geglu"], ["tied_embeddings", true]]);
let _gpt_oss;
_gpt_oss = $def("_gpt_oss", "layers experts", [], function (layers, experts) {
let ffn, kinds, sizes;
ffn = FeedForward({__proto__: $k, experts: experts, experts_per_token: 4n, router: "softmax_of_chosen", router_bias: true});
kinds = tuple((function* ($first) { for (const window of $first) yield Layer(Attention(window, {__proto__: $k, sinks: true}), ffn); })($tuple([128n, null])));
sizes = dict([["num_kv_heads", 8n], ["head_dim", 64n], ["ffn", "clamped_swiglu"], ["bias", true]]);
return TransformerShape(201088n, 131072n, layers, 2880n, 64n, 2880n, {__proto__: $k, layers: kinds, ...$named(sizes)});
});
let _SHAPES;
_SHAPES = dict([...dict((function* ($first) { for (const [name, [layers, width, heads]] of $first) yield [name, TransformerShape(50257n, 1024n, layers, width, heads, $mul(4n, width), {__proto__: $k, ...$named(_GPT2_BLOCK)})]; })(_GPT2.items())).items(), ...dict((function* ($first) { for (const [name, [layers, width, heads]] of $first) yield [("" + $format(name, "") + "-swiglu"), TransformerShape(50257n, 1024n, layers, width, heads, $mul(4n, width))]; })(_GPT2.items())).items(), ["gpt3-175b", TransformerShape(50257n, 2048n, 96n, 12288n, 96n, $mul(4n, 12288n), {__proto__: $k, ...$named(_GPT2_BLOCK)})], ["tinyllama-1.1b", TransformerShape(32000n, 2048n, 22n, 2048n, 32n, 5632n, {__proto__: $k, num_kv_heads: 4n})], ["llama-2-7b", TransformerShape(32000n, 4096n, 32n, 4096n, 32n, 11008n)], ["llama-3-8b", TransformerShape(128256n, 8192n, 32n, 4096n, 32n, 14336n, {__proto__: $k, num_kv_heads: 8n})], ["llama-3-70b", TransformerShape(128256n, 8192n, 80n, 8192n, 64n, 28672n, {__proto__: $k, num_kv_heads: 8n})], ["llama-3.2-1b", TransformerShape(128256n, 131072n, 16n, 2048n, 32n, 8192n, {__proto__: $k, num_kv_heads: 8n, tied_embeddings: true})], ["mistral-7b", TransformerShape(32000n, 32768n, 32n, 4096n, 32n, 14336n, {__proto__: $k, num_kv_heads: 8n, sliding_window: 4096n})], ["mixtral-8x7b", TransformerShape(...$tuple([32000n, 32768n, 32n, 4096n, 32n, 14336n]), {__proto__: $k, num_kv_heads: 8n, experts: 8n, experts_per_token: 2n})], ["qwen2.5-0.5b", TransformerShape(...$tuple([151936n, 32768n, 24n, 896n, 14n, 4864n]), {__proto__: $k, num_kv_heads: 2n, tied_embeddings: true, qkv_bias: true})], ["qwen3-0.6b", TransformerShape(...$tuple([151936n, 40960n, 28n, 1024n, 16n, 3072n]), {__proto__: $k, num_kv_heads: 8n, head_dim: 128n, tied_embeddings: true, qk_norm: true})], ["qwen3-30b-a3b", TransformerShape(...$tuple([151936n, 40960n, 48n, 2048n, 32n, 768n]), {__proto__: $k, num_kv_heads: 4n, head_dim: 128n, qk_norm: true, experts: 128n, experts_per_token: 8n})], ["deepseek-v3", TransformerShape(...$tuple([129280n, 163840n, 61n, 7168n, 128n, 2048n]), {__proto__: $k, leading: $mul(3n, $tuple([Layer(_DEEPSEEK, FeedForward(18432n))])), layers: $tuple([Layer(_DEEPSEEK, _DEEPSEEK_FFN)])})], ["gpt-oss-20b", _gpt_oss(24n, 32n)], ["gpt-oss-120b", _gpt_oss(36n, 128n)], ["llama-4-scout", TransformerShape(...$tuple([202048n, 10485760n, 48n, 5120n, 40n, 8192n]), {__proto__: $k, num_kv_heads: 8n, head_dim: 128n, layers: _SCOUT_LAYERS})], ["gemma-2b", TransformerShape(256000n, 8192n, 18n, 2048n, 8n, 16384n, {__proto__: $k, num_kv_heads: 1n, ...$named(_GEMMA)})], ["gemma-2-2b", TransformerShape(...$tuple([256000n, 8192n, 26n, 2304n, 8n, 9216n]), {__proto__: $k, num_kv_heads: 4n, post_norm: true, layers: $tuple([Layer(Attention(4096n)), Layer()]), ...$named(_GEMMA)})], ["gemma-3-1b", TransformerShape(...$tuple([262144n, 32768n, 26n, 1152n, 4n, 6912n]), {__proto__: $k, num_kv_heads: 1n, post_norm: true, qk_norm: true, layers: $tuple([...$mul(5n, $tuple([Layer(Attention(512n))])), Layer()]), ...$named(_GEMMA)})]]);
let SHAPES;
SHAPES = _SHAPES;
return {_GPT2, _GPT2_BLOCK, _DEEPSEEK, _DEEPSEEK_FFN, _SCOUT_FFN, _SCOUT_LAYERS, _GEMMA, _gpt_oss, _SHAPES, SHAPES};
};
$modules["accounting.planning.accuracy"] = () => {
const DEVICES = $load("accounting.hardware.devices").DEVICES;
const dataclass = $load("dataclasses").dataclass;
const log2 = $load("math").log2;
const parameters = $load("accounting.counting.parameters").parameters;
let NEAREST;
NEAREST = 19n;
let NAMED;
NAMED = 3n;
let PublishedRun;
PublishedRun = $class("PublishedRun", [], true, [["kind"], ["model"], ["device"], ["devices"], ["framework"], ["precision"], ["length"], ["active"], ["took"], ["fitted"]], ($c) => {
$c.words = property($def("words", "self", [], function (self) {
let precision;

precision = ($eq(self.precision, "bf16") ? "" : ("" + " in " + $format(self.precision, "")));
return ("" + $format(self.model, "") + $format(precision, "") + " on " + $format(self.devices, ("" + ",")) + " × " + $format(self.device, "") + " by " + $format(self.framework, "") + " " + $format(self.took, ("" + ".2f")));
}));
});
let Accuracy;
Accuracy = $class("Accuracy", [], true, [["nearest"], ["kind"], ["runs"], ["held_out"], ["median"], ["largest"], ["covered"]], ($c) => {
$c.shortest = property($def("shortest", "self", [], function (self) {

return min((function* ($first) { for (const run of $first) yield run.took; })(self.nearest));
}));
$c.longest = property($def("longest", "self", [], function (self) {

return max((function* ($first) { for (const run of $first) yield run.took; })(self.nearest));
}));
$c.words = property($def("words", "self", [], function (self) {
let models, named;

models = ($eq(self.kind, "dense") ? "dense models" : "mixtures of experts");
named = "; ".join((function* ($first) { for (const run of $first) yield run.words; })($slice(self.nearest, null, NAMED)));
return ("" + "the " + $format(len(getattr(self, "nearest")), "") + " published runs most like it, which took " + $format(self.shortest, ("" + ".2f")) + " to " + $format(self.longest, ("" + ".2f")) + " of the predicted time, the nearest: " + $format(named, "") + ". Of " + $format(self.held_out, "") + " runs of " + $format(models, "") + " that were never fitted (of " + $format(self.runs, "") + ") " + $format(self.covered, ("" + ".0%")) + " lie in such a range; their median error is " + $format(self.median, ("" + ".0%")) + ", the largest " + $format(self.largest, ("" + ".0%")));
}));
});
let accuracy;
accuracy = $def("accuracy", "shape device devices seq_len= * precision=", [null, "bf16"], function (shape, device, devices, seq_len, precision) {
let active, every, kind, length, mine, numbers, row;

kind = ($gt(shape.most_experts, 1n) ? "mixture" : "dense");
[active, length] = $tuple([int(getattr(parameters(shape, {__proto__: $k, active: true}), "total")), shape.sequence(seq_len)]);
mine = PublishedRun(kind, "", getattr(device, "name"), devices, "", precision, length, active, 1.0, false);
every = [...(function* ($first) { for (const row of $first) yield _run(row); })(run_rows())];
row = next((function* ($first) { for (const row of $first) if ($eq($item(row, "kind"), kind)) yield row; })(rows()));
numbers = dict((function* ($first) { for (const name of $first) yield [name, float($item(row, name))]; })($tuple(["median", "largest", "covered"])));
return Accuracy(nearest(mine, device, every), kind, int($item(row, "runs")), int($item(row, "held out")), {__proto__: $k, ...$named(numbers)});
});
let nearest;
nearest = $def("nearest", "mine device among", [], function (mine, device, among) {
let first, run, some;

some = sorted((function* ($first) { for (const run of $first) if ($eq(run.kind, mine.kind)) yield run; })(among), {__proto__: $k, key: ((run) => _distance(mine, device, run))});
first = dict([]);
for (run of some) {
first.setdefault($tuple([run.model, run.device, run.framework, run.precision]), run);
}
return $slice(tuple(first.values()), null, NEAREST);
});
let _distance;
_distance = $def("_distance", "mine device run", [], function (mine, device, run) {
let distance, other, peaks, sizes;

sizes = $tuple([$div(mine.devices, run.devices), $div(mine.active, run.active), $div(mine.length, run.length)]);
distance = $div(sum((function* ($first) { for (const ratio of $first) yield abs(log2(ratio)); })(sizes)), 6n);
if ($ne($eq(mine.precision, "bf16"), $eq(run.precision, "bf16"))) {
distance = $add(distance, 1n);
}
if ($ne(run.device, mine.device)) {
other = $item(DEVICES, run.device);
peaks = [...(function* ($first) { for (const one of $first) yield float($or(one.peaks.get("bf16"), () => max(one.peaks.values()))); })($tuple([device, other]))];
distance = $add(distance, $add($add(0.5, $div(abs(log2($div($item(peaks, 0n), $item(peaks, 1n)))), 2n)), $ne(device.maker, other.maker)));
}
return round($mul(distance, 1000000.0));
});
let _run;
_run = $def("_run", "row", [], function (row) {
let active, device, devices, fitted, framework, kind, length, model, precision, sizes, took;
[kind, model, device, devices, framework, precision, length, active, took, fitted] = row;
sizes = $tuple([int(length), int(active), float(took)]);
return PublishedRun(kind, model, device, int(devices), framework, precision, ...sizes, $eq(fitted, "yes"));
});
let rows;
rows = () => $json("[{\"kind\": \"dense\", \"runs\": \"136\", \"held out\": \"41\", \"devices\": \"10\", \"frameworks\": \"8\", \"median\": \"0.070\", \"largest\": \"0.260\", \"covered\": \"0.854\"}, {\"kind\": \"mixture\", \"runs\": \"54\", \"held out\": \"13\", \"devices\": \"5\", \"frameworks\": \"4\", \"median\": \"0.070\", \"largest\": \"0.240\", \"covered\": \"1.000\"}]");
let run_rows;
run_rows = () => $json("[[\"dense\", \"llama-3.1-405b\", \"h100\", \"8192\", \"Meta's own\", \"bf16\", \"8192\", \"405853388800\", \"1.26\", \"no\"], [\"dense\", \"llama-3.1-405b\", \"h100\", \"16384\", \"Meta's own\", \"bf16\", \"8192\", \"405853388800\", \"1.25\", \"no\"], [\"dense\", \"mpt-70b\", \"a100-80gb\", \"64\", \"llm-foundry\", \"bf16\", \"2048\", \"64862437376\", \"1.04\", \"no\"], [\"dense\", \"mpt-30b\", \"a100-80gb\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"29975214080\", \"0.96\", \"no\"], [\"dense\", \"mpt-13b\", \"a100-80gb\", \"8\", \"llm-foundry\", \"bf16\", \"4096\", \"12864440320\", \"0.87\", \"yes\"], [\"dense\", \"mpt-7b\", \"a100-80gb\", \"8\", \"llm-foundry\", \"bf16\", \"8192\", \"6684024832\", \"0.79\", \"no\"], [\"dense\", \"mpt-7b\", \"a100-80gb\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"6658859008\", \"1.03\", \"yes\"], [\"dense\", \"mpt-3b\", \"a100-80gb\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"2651837440\", \"0.99\", \"yes\"], [\"dense\", \"mpt-1b\", \"a100-80gb\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"1315950592\", \"0.97\", \"yes\"], [\"dense\", \"mpt-70b\", \"a100-40gb\", \"128\", \"llm-foundry\", \"bf16\", \"2048\", \"64862437376\", \"1.06\", \"yes\"], [\"dense\", \"mpt-30b\", \"a100-40gb\", \"128\", \"llm-foundry\", \"bf16\", \"2048\", \"29975214080\", \"1.0\", \"no\"], [\"dense\", \"mpt-30b\", \"a100-40gb\", \"32\", \"llm-foundry\", \"bf16\", \"2048\", \"29975214080\", \"0.99\", \"no\"], [\"dense\", \"mpt-13b\", \"a100-40gb\", \"128\", \"llm-foundry\", \"bf16\", \"2048\", \"12853954560\", \"0.99\", \"no\"], [\"dense\", \"mpt-13b\", \"a100-40gb\", \"8\", \"llm-foundry\", \"bf16\", \"4096\", \"12864440320\", \"1.05\", \"yes\"], [\"dense\", \"mpt-7b\", \"a100-40gb\", \"128\", \"llm-foundry\", \"bf16\", \"2048\", \"6658859008\", \"0.99\", \"yes\"], [\"dense\", \"mpt-7b\", \"a100-40gb\", \"8\", \"llm-foundry\", \"bf16\", \"8192\", \"6684024832\", \"0.85\", \"yes\"], [\"dense\", \"mpt-3b\", \"a100-40gb\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"2651837440\", \"0.99\", \"yes\"], [\"dense\", \"mpt-70b\", \"h100\", \"512\", \"llm-foundry\", \"bf16\", \"2048\", \"64862437376\", \"1.14\", \"yes\"], [\"dense\", \"mpt-70b\", \"h100\", \"128\", \"llm-foundry\", \"bf16\", \"2048\", \"64862437376\", \"1.1\", \"yes\"], [\"dense\", \"mpt-30b\", \"h100\", \"256\", \"llm-foundry\", \"bf16\", \"2048\", \"29975214080\", \"1.14\", \"no\"], [\"dense\", \"mpt-30b\", \"h100\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"29975214080\", \"1.16\", \"no\"], [\"dense\", \"mpt-13b\", \"h100\", \"64\", \"llm-foundry\", \"bf16\", \"2048\", \"12853954560\", \"1.2\", \"yes\"], [\"dense\", \"mpt-13b\", \"h100\", \"8\", \"llm-foundry\", \"bf16\", \"4096\", \"12864440320\", \"1.04\", \"yes\"], [\"dense\", \"mpt-7b\", \"h100\", \"512\", \"llm-foundry\", \"bf16\", \"2048\", \"6658859008\", \"1.17\", \"yes\"], [\"dense\", \"mpt-7b\", \"h100\", \"128\", \"llm-foundry\", \"bf16\", \"2048\", \"6658859008\", \"1.16\", \"yes\"], [\"dense\", \"mpt-7b\", \"h100\", \"8\", \"llm-foundry\", \"bf16\", \"8192\", \"6684024832\", \"1.01\", \"no\"], [\"dense\", \"mpt-7b\", \"h100\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"6658859008\", \"1.18\", \"yes\"], [\"dense\", \"mpt-1b\", \"h100\", \"8\", \"llm-foundry\", \"bf16\", \"2048\", \"1315950592\", \"1.12\", \"yes\"], [\"dense\", \"mpt-3b\", \"h100\", \"512\", \"llm-foundry\", \"bf16\", \"2048\", \"2651837440\", \"1.14\", \"no\"], [\"dense\", \"mpt-3b\", \"h100\", \"8\", \"llm-foundry\", \"bf16\", \"4096\", \"2657080320\", \"1.11\", \"yes\"], [\"dense\", \"llama-3-8b\", \"a100-80gb\", \"64\", \"torchtitan\", \"bf16\", \"8192\", \"8030261248\", \"0.85\", \"no\"], [\"dense\", \"llama-3-70b\", \"a100-80gb\", \"64\", \"torchtitan\", \"bf16\", \"8192\", \"70553706496\", \"0.9\", \"yes\"], [\"dense\", \"llama-2-13b\", \"a100-80gb\", \"64\", \"torchtitan\", \"bf16\", \"4096\", \"13015864320\", \"0.97\", \"yes\"], [\"dense\", \"llama-2-70b\", \"a100-80gb\", \"64\", \"torchtitan\", \"bf16\", \"4096\", \"68976648192\", \"0.98\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"8\", \"torchtitan\", \"bf16\", \"8192\", \"8030261248\", \"1.02\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"128\", \"torchtitan\", \"bf16\", \"8192\", \"8030261248\", \"1.02\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"64\", \"torchtitan\", \"bf16\", \"8192\", \"8030261248\", \"1.16\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"256\", \"torchtitan\", \"bf16\", \"8192\", \"70553706496\", \"1.08\", \"yes\"], [\"dense\", \"kempner-7b\", \"h200\", \"1\", \"KempnerForge\", \"bf16\", \"4096\", \"8030261248\", \"0.77\", \"yes\"], [\"dense\", \"kempner-7b\", \"h200\", \"2\", \"KempnerForge\", \"bf16\", \"4096\", \"8030261248\", \"0.83\", \"yes\"], [\"dense\", \"kempner-7b\", \"h200\", \"4\", \"KempnerForge\", \"bf16\", \"4096\", \"8030261248\", \"0.81\", \"no\"], [\"dense\", \"kempner-7b\", \"h200\", \"4\", \"KempnerForge\", \"bf16\", \"4096\", \"8030261248\", \"1.05\", \"yes\"], [\"dense\", \"kempner-7b\", \"h200\", \"8\", \"KempnerForge\", \"bf16\", \"4096\", \"8030261248\", \"1.03\", \"yes\"], [\"dense\", \"kempner-7b\", \"h200\", \"32\", \"KempnerForge\", \"bf16\", \"4096\", \"8030261248\", \"1.06\", \"yes\"], [\"dense\", \"kempner-13b\", \"h200\", \"8\", \"KempnerForge\", \"bf16\", \"4096\", \"14840386560\", \"0.96\", \"yes\"], [\"dense\", \"kempner-13b\", \"h200\", \"32\", \"KempnerForge\", \"bf16\", \"4096\", \"14840386560\", \"0.9\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h200\", \"32\", \"KempnerForge\", \"bf16\", \"4096\", \"70553706496\", \"0.88\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"64\", \"NeMo AutoModel\", \"bf16\", \"8192\", \"70553706496\", \"1.04\", \"yes\"], [\"mixture\", \"qwen3-30b-a3b\", \"h100\", \"8\", \"NeMo AutoModel\", \"bf16\", \"4096\", \"3353032704\", \"0.76\", \"yes\"], [\"mixture\", \"gpt-oss-20b\", \"h100\", \"8\", \"NeMo AutoModel\", \"bf16\", \"4096\", \"4187440704\", \"0.94\", \"yes\"], [\"mixture\", \"gpt-oss-120b\", \"h100\", \"64\", \"NeMo AutoModel\", \"bf16\", \"4096\", \"5711982912\", \"0.91\", \"yes\"], [\"mixture\", \"deepseek-v3\", \"h100\", \"1024\", \"NeMo AutoModel\", \"bf16\", \"4096\", \"37552282624\", \"1.11\", \"yes\"], [\"mixture\", \"deepseek-v3\", \"h100\", \"256\", \"NeMo AutoModel\", \"bf16\", \"4096\", \"37552282624\", \"0.93\", \"yes\"], [\"dense\", \"llama-3-8b-lora\", \"h100\", \"1\", \"NeMo AutoModel\", \"bf16\", \"4096\", \"8072204288\", \"1.28\", \"yes\"], [\"mixture\", \"gpt-oss-120b\", \"gb300\", \"64\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"5711982912\", \"0.99\", \"no\"], [\"mixture\", \"gpt-oss-120b\", \"gb200\", \"64\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"5711982912\", \"1.14\", \"yes\"], [\"mixture\", \"gpt-oss-120b\", \"b300\", \"64\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"5711982912\", \"1.14\", \"yes\"], [\"mixture\", \"gpt-oss-120b\", \"b200\", \"64\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"5711982912\", \"1.1\", \"no\"], [\"mixture\", \"gpt-oss-120b\", \"h100\", \"64\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"5711982912\", \"1.13\", \"yes\"], [\"mixture\", \"deepseek-v3\", \"gb300\", \"256\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"37552282624\", \"0.9\", \"yes\"], [\"mixture\", \"deepseek-v3\", \"gb200\", \"256\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"37552282624\", \"1.09\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"gb300\", \"256\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"22190763520\", \"0.84\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"gb200\", \"256\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"22190763520\", \"1.02\", \"no\"], [\"mixture\", \"kimi-k2\", \"h100\", \"256\", \"NeMo AutoModel\", \"bf16\", \"4096\", \"32861477888\", \"1.21\", \"yes\"], [\"mixture\", \"gpt-oss-120b\", \"gb300\", \"64\", \"Megatron-Bridge\", \"bf16\", \"8192\", \"5711982912\", \"1.01\", \"yes\"], [\"mixture\", \"gpt-oss-120b\", \"gb200\", \"64\", \"Megatron-Bridge\", \"bf16\", \"8192\", \"5711982912\", \"1.16\", \"yes\"], [\"mixture\", \"gpt-oss-120b\", \"h100\", \"64\", \"Megatron-Bridge\", \"bf16\", \"4096\", \"5711982912\", \"0.92\", \"yes\"], [\"dense\", \"maxtext-22b\", \"tpu-v4\", \"64\", \"MaxText\", \"bf16\", \"2048\", \"25760962560\", \"0.9\", \"yes\"], [\"dense\", \"maxtext-52b\", \"tpu-v4\", \"192\", \"MaxText\", \"bf16\", \"2048\", \"65211740160\", \"0.93\", \"yes\"], [\"dense\", \"maxtext-16b\", \"tpu-v5e\", \"256\", \"MaxText\", \"bf16\", \"2048\", \"15831666688\", \"0.8\", \"yes\"], [\"dense\", \"maxtext-32b\", \"tpu-v5e\", \"256\", \"MaxText\", \"bf16\", \"2048\", \"31663333376\", \"0.76\", \"no\"], [\"dense\", \"maxtext-64b\", \"tpu-v5e\", \"256\", \"MaxText\", \"bf16\", \"2048\", \"62802370560\", \"0.79\", \"no\"], [\"dense\", \"maxtext-32b\", \"tpu-v5p\", \"64\", \"MaxText\", \"bf16\", \"2048\", \"31663333376\", \"0.97\", \"no\"], [\"dense\", \"maxtext-64b\", \"tpu-v5p\", \"64\", \"MaxText\", \"bf16\", \"2048\", \"62802370560\", \"0.98\", \"no\"], [\"dense\", \"maxtext-128b\", \"tpu-v5p\", \"128\", \"MaxText\", \"bf16\", \"2048\", \"125079396352\", \"0.98\", \"yes\"], [\"dense\", \"maxtext-256b\", \"tpu-v5p\", \"512\", \"MaxText\", \"bf16\", \"2048\", \"250158792704\", \"1.03\", \"yes\"], [\"dense\", \"maxtext-512b\", \"tpu-v5p\", \"512\", \"MaxText\", \"bf16\", \"2048\", \"499268993024\", \"0.82\", \"yes\"], [\"dense\", \"llama-3-8b\", \"tpu-v6e\", \"8\", \"MaxText\", \"bf16\", \"8192\", \"8030261248\", \"0.95\", \"yes\"], [\"dense\", \"llama-3-8b\", \"tpu-v6e\", \"64\", \"MaxText\", \"bf16\", \"8192\", \"8030261248\", \"0.96\", \"yes\"], [\"dense\", \"llama-3-8b\", \"tpu-v6e\", \"256\", \"MaxText\", \"bf16\", \"8192\", \"8030261248\", \"0.95\", \"yes\"], [\"dense\", \"llama-3-70b\", \"tpu-v6e\", \"32\", \"MaxText\", \"bf16\", \"8192\", \"70553706496\", \"0.99\", \"yes\"], [\"dense\", \"llama-3-70b\", \"tpu-v6e\", \"256\", \"MaxText\", \"bf16\", \"8192\", \"70553706496\", \"1.01\", \"yes\"], [\"dense\", \"llama-2-70b\", \"tpu-v6e\", \"256\", \"MaxText\", \"bf16\", \"4096\", \"68976648192\", \"0.97\", \"yes\"], [\"dense\", \"gpt3-175b\", \"tpu-v6e\", \"256\", \"MaxText\", \"bf16\", \"2048\", \"174604259328\", \"1.03\", \"yes\"], [\"dense\", \"mistral-7b\", \"tpu-v6e\", \"8\", \"MaxText\", \"bf16\", \"8192\", \"7241732096\", \"0.97\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"8\", \"NeMo\", \"bf16\", \"8192\", \"8030261248\", \"0.99\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"8\", \"NeMo\", \"fp8\", \"8192\", \"8030261248\", \"1.01\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"32\", \"NeMo\", \"bf16\", \"8192\", \"8030261248\", \"1.0\", \"no\"], [\"dense\", \"llama-3-8b\", \"h100\", \"32\", \"NeMo\", \"fp8\", \"8192\", \"8030261248\", \"1.02\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"128\", \"NeMo\", \"bf16\", \"8192\", \"8030261248\", \"1.0\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"128\", \"NeMo\", \"fp8\", \"8192\", \"8030261248\", \"1.03\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"8\", \"NeMo\", \"bf16\", \"8192\", \"8030261248\", \"1.04\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"8\", \"NeMo\", \"fp8\", \"8192\", \"8030261248\", \"1.05\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"64\", \"NeMo\", \"bf16\", \"8192\", \"70553706496\", \"1.03\", \"no\"], [\"dense\", \"llama-3-70b\", \"h100\", \"2048\", \"NeMo\", \"bf16\", \"8192\", \"70553706496\", \"1.03\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"64\", \"NeMo\", \"fp8\", \"8192\", \"70553706496\", \"0.92\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"2048\", \"NeMo\", \"fp8\", \"8192\", \"70553706496\", \"0.95\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"64\", \"NeMo\", \"bf16\", \"8192\", \"70553706496\", \"1.03\", \"no\"], [\"dense\", \"llama-3-70b\", \"h100\", \"64\", \"NeMo\", \"fp8\", \"8192\", \"70553706496\", \"1.06\", \"no\"], [\"dense\", \"llama-3.1-405b-8-layers\", \"h100\", \"32\", \"NeMo\", \"bf16\", \"8192\", \"29704339456\", \"1.02\", \"yes\"], [\"dense\", \"llama-3.1-405b-8-layers\", \"h100\", \"32\", \"NeMo\", \"fp8\", \"8192\", \"29704339456\", \"0.91\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"h100\", \"512\", \"NeMo\", \"bf16\", \"8192\", \"405853388800\", \"1.01\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"h100\", \"512\", \"NeMo\", \"fp8\", \"8192\", \"405853388800\", \"0.89\", \"no\"], [\"dense\", \"llama-3.1-405b\", \"h100\", \"2048\", \"NeMo\", \"bf16\", \"8192\", \"405853388800\", \"1.01\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"h100\", \"2048\", \"NeMo\", \"fp8\", \"8192\", \"405853388800\", \"0.9\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"h100\", \"576\", \"NeMo\", \"bf16\", \"8192\", \"405853388800\", \"0.98\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"h100\", \"576\", \"NeMo\", \"fp8\", \"8192\", \"405853388800\", \"0.89\", \"no\"], [\"dense\", \"nemotron-4-15b\", \"h100\", \"16\", \"NeMo\", \"bf16\", \"4096\", \"15628376064\", \"0.98\", \"yes\"], [\"dense\", \"nemotron-4-15b\", \"h100\", \"16\", \"NeMo\", \"fp8\", \"4096\", \"15628376064\", \"0.96\", \"yes\"], [\"dense\", \"nemotron-4-15b\", \"h100\", \"2048\", \"NeMo\", \"bf16\", \"4096\", \"15628376064\", \"0.99\", \"no\"], [\"dense\", \"nemotron-4-15b\", \"h100\", \"2048\", \"NeMo\", \"fp8\", \"4096\", \"15628376064\", \"0.94\", \"yes\"], [\"dense\", \"nemotron-4-15b\", \"h100\", \"16\", \"NeMo\", \"bf16\", \"4096\", \"15628376064\", \"1.06\", \"no\"], [\"dense\", \"nemotron-4-15b\", \"h100\", \"16\", \"NeMo\", \"fp8\", \"4096\", \"15628376064\", \"1.06\", \"no\"], [\"dense\", \"nemotron-4-340b\", \"h100\", \"128\", \"NeMo\", \"bf16\", \"4096\", \"341025638400\", \"1.04\", \"no\"], [\"dense\", \"nemotron-4-340b\", \"h100\", \"128\", \"NeMo\", \"fp8\", \"4096\", \"341025638400\", \"0.98\", \"yes\"], [\"dense\", \"nemotron-4-340b\", \"h100\", \"256\", \"NeMo\", \"bf16\", \"4096\", \"341025638400\", \"1.01\", \"no\"], [\"dense\", \"nemotron-4-340b\", \"h100\", \"256\", \"NeMo\", \"fp8\", \"4096\", \"341025638400\", \"0.92\", \"yes\"], [\"dense\", \"gpt-175b\", \"h100\", \"128\", \"NeMo\", \"bf16\", \"2048\", \"174615846912\", \"1.11\", \"no\"], [\"dense\", \"gpt-175b\", \"h100\", \"128\", \"NeMo\", \"fp8\", \"2048\", \"174615846912\", \"1.06\", \"yes\"], [\"dense\", \"gpt-175b\", \"h100\", \"128\", \"NeMo\", \"bf16\", \"2048\", \"174615846912\", \"1.03\", \"yes\"], [\"dense\", \"gpt-175b\", \"h100\", \"128\", \"NeMo\", \"fp8\", \"2048\", \"174615846912\", \"1.0\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"gb200\", \"128\", \"NeMo\", \"bf16\", \"8192\", \"405853388800\", \"1.21\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"gb200\", \"128\", \"NeMo\", \"fp8\", \"8192\", \"405853388800\", \"1.19\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"gb200\", \"512\", \"NeMo\", \"bf16\", \"8192\", \"405853388800\", \"1.23\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"gb200\", \"512\", \"NeMo\", \"fp8\", \"8192\", \"405853388800\", \"1.21\", \"yes\"], [\"dense\", \"nemotron-4-340b\", \"gb200\", \"128\", \"NeMo\", \"bf16\", \"4096\", \"341025638400\", \"1.2\", \"yes\"], [\"dense\", \"nemotron-4-340b\", \"gb200\", \"128\", \"NeMo\", \"fp8\", \"4096\", \"341025638400\", \"1.14\", \"yes\"], [\"dense\", \"nemotron-4-340b\", \"gb200\", \"512\", \"NeMo\", \"bf16\", \"4096\", \"341025638400\", \"1.2\", \"yes\"], [\"dense\", \"nemotron-4-340b\", \"gb200\", \"512\", \"NeMo\", \"fp8\", \"4096\", \"341025638400\", \"1.16\", \"no\"], [\"dense\", \"nemotron-4-340b\", \"gb200\", \"128\", \"NeMo\", \"bf16\", \"4096\", \"341025638400\", \"1.17\", \"yes\"], [\"dense\", \"nemotron-4-340b\", \"gb200\", \"128\", \"NeMo\", \"fp8\", \"4096\", \"341025638400\", \"1.1\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"32\", \"NeMo\", \"bf16\", \"4096\", \"70553706496\", \"0.96\", \"no\"], [\"dense\", \"llama-3-70b\", \"h100\", \"32\", \"NeMo\", \"fp8\", \"4096\", \"70553706496\", \"0.9\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"8\", \"NeMo\", \"bf16\", \"4096\", \"8030261248\", \"0.91\", \"yes\"], [\"dense\", \"llama-3-8b\", \"h100\", \"8\", \"NeMo\", \"fp8\", \"4096\", \"8030261248\", \"0.89\", \"no\"], [\"dense\", \"llama-3-8b-lora\", \"h100\", \"8\", \"NeMo\", \"bf16\", \"4096\", \"8072204288\", \"0.89\", \"yes\"], [\"dense\", \"llama-3-8b-lora\", \"h100\", \"8\", \"NeMo\", \"fp8\", \"4096\", \"8072204288\", \"0.88\", \"yes\"], [\"dense\", \"llama-3-70b-lora\", \"h100\", \"8\", \"NeMo\", \"bf16\", \"4096\", \"70760800256\", \"1.06\", \"yes\"], [\"dense\", \"llama-3-70b-lora\", \"h100\", \"8\", \"NeMo\", \"fp8\", \"4096\", \"70760800256\", \"1.07\", \"no\"], [\"dense\", \"llama-2-70b\", \"h100\", \"64\", \"MaxText\", \"bf16\", \"4096\", \"68976648192\", \"0.9\", \"yes\"], [\"dense\", \"llama-2-70b\", \"h100\", \"64\", \"MaxText\", \"fp8\", \"4096\", \"68976648192\", \"0.83\", \"no\"], [\"dense\", \"llama-2-70b\", \"h100\", \"256\", \"MaxText\", \"bf16\", \"4096\", \"68976648192\", \"0.91\", \"yes\"], [\"dense\", \"llama-2-70b\", \"h100\", \"256\", \"MaxText\", \"fp8\", \"4096\", \"68976648192\", \"0.93\", \"no\"], [\"dense\", \"llama-3-70b\", \"h100\", \"128\", \"MaxText\", \"bf16\", \"8192\", \"70553706496\", \"0.99\", \"yes\"], [\"dense\", \"llama-3-70b\", \"h100\", \"128\", \"MaxText\", \"fp8\", \"8192\", \"70553706496\", \"0.86\", \"no\"], [\"mixture\", \"grok-1-8-layers\", \"h100\", \"64\", \"NeMo\", \"bf16\", \"8192\", \"11174221824\", \"1.01\", \"no\"], [\"mixture\", \"grok-1-8-layers\", \"h100\", \"64\", \"NeMo\", \"fp8\", \"8192\", \"11174221824\", \"1.03\", \"yes\"], [\"mixture\", \"grok-1-16-layers\", \"h100\", \"128\", \"NeMo\", \"bf16\", \"8192\", \"21543131136\", \"1.02\", \"no\"], [\"mixture\", \"grok-1-16-layers\", \"h100\", \"128\", \"NeMo\", \"fp8\", \"8192\", \"21543131136\", \"1.05\", \"yes\"], [\"mixture\", \"grok-1\", \"h100\", \"512\", \"NeMo\", \"bf16\", \"8192\", \"83756587008\", \"1.02\", \"yes\"], [\"mixture\", \"grok-1\", \"h100\", \"512\", \"NeMo\", \"fp8\", \"8192\", \"83756587008\", \"1.06\", \"yes\"], [\"mixture\", \"grok-1\", \"gb200\", \"128\", \"NeMo\", \"bf16\", \"8192\", \"83756587008\", \"0.88\", \"no\"], [\"mixture\", \"grok-1\", \"gb200\", \"128\", \"NeMo\", \"fp8\", \"8192\", \"83756587008\", \"0.85\", \"yes\"], [\"mixture\", \"grok-1\", \"gb200\", \"256\", \"NeMo\", \"bf16\", \"8192\", \"83756587008\", \"0.89\", \"no\"], [\"mixture\", \"grok-1\", \"gb200\", \"256\", \"NeMo\", \"fp8\", \"8192\", \"83756587008\", \"0.83\", \"yes\"], [\"mixture\", \"llama-4-maverick\", \"gb200\", \"128\", \"NeMo\", \"bf16\", \"8192\", \"17184691200\", \"1.09\", \"yes\"], [\"mixture\", \"llama-4-maverick\", \"gb200\", \"128\", \"NeMo\", \"fp8\", \"8192\", \"17184691200\", \"1.08\", \"yes\"], [\"mixture\", \"llama-4-maverick\", \"gb200\", \"512\", \"NeMo\", \"bf16\", \"8192\", \"17184691200\", \"1.1\", \"yes\"], [\"mixture\", \"llama-4-maverick\", \"gb200\", \"512\", \"NeMo\", \"fp8\", \"8192\", \"17184691200\", \"1.09\", \"yes\"], [\"mixture\", \"llama-4-maverick\", \"h100\", \"512\", \"NeMo\", \"bf16\", \"8192\", \"17184691200\", \"0.93\", \"no\"], [\"mixture\", \"llama-4-maverick\", \"h100\", \"512\", \"NeMo\", \"fp8\", \"8192\", \"17184691200\", \"0.98\", \"yes\"], [\"mixture\", \"mixtral-8x7b\", \"h100\", \"64\", \"Megatron-LM\", \"bf16\", \"4096\", \"12879925248\", \"0.87\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"h100\", \"256\", \"Megatron-LM\", \"bf16\", \"4096\", \"22190763520\", \"0.76\", \"no\"], [\"mixture\", \"qwen3-235b-a22b\", \"h100\", \"256\", \"Megatron-LM\", \"bf16\", \"16384\", \"22190763520\", \"1.01\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"h100\", \"256\", \"Megatron-LM\", \"bf16\", \"32768\", \"22190763520\", \"1.0\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"h100\", \"256\", \"Megatron-LM\", \"bf16\", \"65536\", \"22190763520\", \"0.99\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"h100\", \"256\", \"Megatron-LM\", \"bf16\", \"131072\", \"22190763520\", \"1.0\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"gb200\", \"256\", \"Megatron-LM\", \"bf16\", \"4096\", \"22190763520\", \"0.96\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"gb200\", \"256\", \"Megatron-LM\", \"mxfp8\", \"4096\", \"22190763520\", \"0.97\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"gb300\", \"64\", \"Megatron-LM\", \"mxfp8\", \"4096\", \"22190763520\", \"0.89\", \"yes\"], [\"dense\", \"llama-3-70b\", \"gb300\", \"64\", \"Megatron-Bridge\", \"mxfp8\", \"8192\", \"70553706496\", \"0.95\", \"no\"], [\"dense\", \"llama-3-70b\", \"gb200\", \"64\", \"Megatron-Bridge\", \"mxfp8\", \"8192\", \"70553706496\", \"1.11\", \"yes\"], [\"dense\", \"llama-3-70b\", \"gb300\", \"64\", \"Megatron-Bridge\", \"fp8\", \"8192\", \"70553706496\", \"0.89\", \"yes\"], [\"dense\", \"llama-3-70b\", \"gb200\", \"64\", \"Megatron-Bridge\", \"fp8\", \"8192\", \"70553706496\", \"1.13\", \"no\"], [\"dense\", \"llama-3-70b\", \"h100\", \"64\", \"Megatron-Bridge\", \"fp8\", \"8192\", \"70553706496\", \"0.95\", \"no\"], [\"dense\", \"llama-3.1-405b\", \"gb300\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"8192\", \"405853388800\", \"0.93\", \"no\"], [\"dense\", \"llama-3.1-405b\", \"gb200\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"8192\", \"405853388800\", \"1.08\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"gb300\", \"256\", \"Megatron-Bridge\", \"fp8\", \"8192\", \"405853388800\", \"0.82\", \"yes\"], [\"dense\", \"llama-3.1-405b\", \"gb200\", \"256\", \"Megatron-Bridge\", \"fp8\", \"8192\", \"405853388800\", \"1.01\", \"yes\"], [\"mixture\", \"deepseek-v3\", \"gb300\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"37552282624\", \"0.91\", \"no\"], [\"mixture\", \"deepseek-v3\", \"gb200\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"37552282624\", \"1.04\", \"no\"], [\"mixture\", \"deepseek-v3\", \"b300\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"37552282624\", \"1.22\", \"yes\"], [\"mixture\", \"deepseek-v3\", \"b200\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"37552282624\", \"1.32\", \"yes\"], [\"mixture\", \"qwen3-30b-a3b\", \"gb300\", \"8\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"3353032704\", \"0.89\", \"yes\"], [\"mixture\", \"qwen3-30b-a3b\", \"gb200\", \"8\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"3353032704\", \"1.07\", \"no\"], [\"mixture\", \"qwen3-30b-a3b\", \"b300\", \"8\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"3353032704\", \"0.92\", \"no\"], [\"mixture\", \"qwen3-30b-a3b\", \"b200\", \"8\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"3353032704\", \"1.03\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"gb300\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"22190763520\", \"0.88\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"gb200\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"22190763520\", \"1.04\", \"yes\"], [\"mixture\", \"qwen3-235b-a22b\", \"b300\", \"256\", \"Megatron-Bridge\", \"mxfp8\", \"4096\", \"22190763520\", \"1.16\", \"yes\"]]");
return {NEAREST, NAMED, PublishedRun, Accuracy, accuracy, nearest, _distance, _run, rows, run_rows};
};
$modules["accounting.planning.step_time"] = () => {
const Bytes = $load("accounting.units").Bytes;
const Component = $load("accounting.memory.records").Component;
const DEFAULT = $load("accounting.policy").DEFAULT;
const Device = $load("accounting.hardware.devices").Device;
const Joins = $load("accounting.cluster.traffic").Joins;
const Place = $load("accounting.cluster.layout").Place;
const Seconds = $load("accounting.units").Seconds;
const Term = $load("accounting.formula").Term;
const TransformerShape = $load("accounting.shape").TransformerShape;
const backward_terms = $load("accounting.counting.flops").backward_terms;
const choose = $load("accounting.checks").choose;
const dataclass = $load("dataclasses").dataclass;
const device_flops = $load("accounting.cluster.device").device_flops;
const device_forward_pass = $load("accounting.cluster.memory").device_forward_pass;
const device_traffic = $load("accounting.cluster.traffic").device_traffic;
const head_tensors = $load("accounting.memory.activations").head_tensors;
const instance = $load("accounting.checks").instance;
const lru_cache = $load("functools").lru_cache;
const plain = $load("accounting.cluster.device").plain;
const positive = $load("accounting.checks").positive;
const replace = $load("dataclasses").replace;
const replicated = $load("accounting.cluster.device").replicated;
const saved_by_layers = $load("accounting.memory.activations").saved_by_layers;
const shard_of = $load("accounting.cluster.zero").shard_of;
const total_bytes = $load("accounting.memory.records").total_bytes;
const zero_traffic = $load("accounting.cluster.zero").zero_traffic;
let FLASH2;
FLASH2 = 0.185;
let FLASH3;
FLASH3 = 0.583;
let PASSES;
PASSES = 9.46;
let HIDDEN;
HIDDEN = 0.5;
let FP8;
FP8 = 1.83;
let EXPERT_PASSES;
EXPERT_PASSES = 33.1;
let EXPERT_WIDTH;
EXPERT_WIDTH = 418.0;
let KERNELS;
KERNELS = $tuple(["flash2", "flash3"]);
let FLASH3_DEVICES;
FLASH3_DEVICES = $tuple(["h100", "h20", "h800", "gh200", "b200", "b300", "gb", "tpu"]);
let OF_A_MICRO_BATCH;
OF_A_MICRO_BATCH = $tuple(["matmul", "memory", "tensor", "context", "expert"]);
let RECOMPUTED_PASSES;
RECOMPUTED_PASSES = 0.4;
let StepTime;
StepTime = $class("StepTime", [], true, [["matmul"], ["memory"], ["tensor"], ["context"], ["expert"], ["bubble"], ["data"], ["optimizer"], ["attention"], ["hidden"], ["link_bytes"], ["network_bytes"]], ($c) => {
$c.parts = property($def("parts", "self", [], function (self) {

return dict((function* ($first) { for (const name of $first) yield [name, getattr(self, name)]; })($tuple([...OF_A_MICRO_BATCH, "bubble", "data", "optimizer"])));
}));
$c.total = property($def("total", "self", [], function (self) {
return Seconds(sum((function* ($first) { for (const seconds of $first) yield float(seconds); })(self.parts.values())));
}));
$c.bound = property($def("bound", "self", [], function (self) {

return max(getattr(self, "parts"), {__proto__: $k, key: ((name) => float($item(self.parts, name)))});
}));
});
let step_time;
step_time = $def("step_time", "shape layout device interconnect batch_size= seq_len= * policy= pairs= efficiency= virtual_stages= kernel=", [1n, null, DEFAULT, "full", null, 1n, null], function (shape, layout, device, interconnect, batch_size, seq_len, policy, pairs, efficiency, virtual_stages, kernel) {
let beside, common, data, idle, of_passes, passes, stage, stages, window;

instance("shape", shape, TransformerShape, "SHAPES");
instance("device", device, Device, "DEVICES");
if ($is(efficiency, null)) {
efficiency = matmul_efficiency(device);
}
if (($true(isinstance(efficiency, bool)) || !($lt(0n, efficiency) && $le(efficiency, 1n)))) {
throw ValueError(("" + "expected efficiency above 0 and at most 1, got " + $format(repr(efficiency), "")));
}
if (($gt(positive("virtual_stages", virtual_stages), 1n) && $eq(layout.pipeline, 1n))) {
throw ValueError(("" + "virtual_stages " + $format(virtual_stages, "") + " are of a pipeline, and here is one stage: leave it out"));
}
kernel = choose("kernel", ($is(kernel, null) ? attention_kernel(device) : kernel), KERNELS);
if ($ne(policy.offload, "none")) {
throw ValueError("the time of offloaded steps is not predicted: no such run is in the table");
}
if ($eq(policy.activation_checkpointing, "operators")) {
throw ValueError("the time of activation_checkpointing 'operators' is not predicted: use 'selective' or 'full'");
}
if (($eq(policy.precision, "fp8") && $notin("fp8", device.peaks))) {
throw ValueError(("" + "expected a device with matmuls in fp8, got " + $format(device.name, "") + ": use precision bf16"));
}
stages = set([0n, $sub(layout.pipeline, 1n)]);
common = $tuple([shape, layout, device, interconnect, batch_size, seq_len, policy, pairs, efficiency, kernel]);
stage = max((function* ($first) { for (const stage of $first) yield _stage_time(Place(stage), ...common); })(stages), {__proto__: $k, key: _micro_batch});
idle = $div($sub(layout.pipeline, 1n), virtual_stages);
passes = layout.micro_batches;
window = $mul(_micro_batch(stage), dict([[2n, $div($mul(passes, 2n), 3n)], [3n, passes]]).get(getattr(layout, "zero"), $div(2n, 3n)));
[data, beside] = $tuple([float(getattr(stage, "data")), $mul(HIDDEN, min(float(getattr(stage, "data")), window))]);
of_passes = dict((function* ($first) { for (const name of $first) yield [name, Seconds($mul(float($item(stage.parts, name)), passes))]; })(OF_A_MICRO_BATCH));
return replace(stage, {__proto__: $k, ...$named(of_passes), bubble: Seconds($mul($add(_micro_batch(stage), float(getattr(stage, "bubble"))), idle)), data: Seconds($sub(data, beside)), attention: Seconds($mul(float(getattr(stage, "attention")), passes)), hidden: Seconds($add($mul(float(getattr(stage, "hidden")), passes), beside))});
});
let _micro_batch;
_micro_batch = $def("_micro_batch", "step", [], function (step) {
return sum((function* ($first) { for (const name of $first) yield float($item(step.parts, name)); })(OF_A_MICRO_BATCH));
});
let matmul_efficiency;
matmul_efficiency = $def("matmul_efficiency", "device", [], function (device) {

return min(1.0, getattr(device, "attainable"));
});
let _stage_time;
_stage_time = $def("_stage_time", "place shape layout device interconnect batch_size seq_len policy pairs efficiency kernel", [], function (place, shape, layout, device, interconnect, batch_size, seq_len, policy, pairs, efficiency, kernel) {
let _, again, beside, both, copies, elementwise, every, expert, ffn, flash, flops, forward, fp8, group, groups, head, in_node, inside, link, link_bytes, matmul, members, memory, memory_time, micro_batches, network, network_bytes, number, one, outside, peak, recomputed, repeated, rings, scores, seconds, sent, size, slowed, split, stride, trained, weights, whole, width;

fp8 = $eq(policy.precision, "fp8");
if ($true(fp8)) {
policy = replace(policy, {__proto__: $k, precision: "bf16"});
}
split = plain(layout);
[flops, both] = _flops(shape, split, place, batch_size, seq_len, pairs);
[forward, head] = $tuple([sum(flops.values()), flops.get("head", 0n)]);
recomputed = $item(dict([["none", 0n], ["selective", $item(flops, "scores")], ["full", $sub(forward, head)]]), policy.activation_checkpointing);
peak = float(device.peak(($eq(policy.precision, "fp32") ? "fp32" : "bf16")));
scores = $mul($item(flops, "scores"), ($eq(policy.activation_checkpointing, "none") ? 3n : 4n));
flash = ($eq(kernel, "flash2") ? FLASH2 : FLASH3);
slowed = $mul(scores, $sub($div(1n, flash), 1n));
if ($true(fp8)) {
slowed = $sub(slowed, $mul($sub($sub($add(both, recomputed), scores), $mul(3n, head)), $sub(1n, $div(1n, FP8))));
}
if ($gt(shape.most_experts, 1n)) {
ffn = $mul($item(flops, "ffn"), ($eq(policy.activation_checkpointing, "full") ? 4n : 3n));
width = min((function* ($first) { for (const one of $first) if ($isnot(one.experts, null)) yield $or(one.d_ff, () => 1n); })(shape.ffns));
slowed = $add(slowed, $div($div($mul($mul(ffn, EXPERT_WIDTH), peak), 1000000000000000.0), width));
}
trained = sum((function* ($first) { for (const one of $first) yield int(getattr(one, "trained")); })(replicated(shape, layout, place)));
weights = $mul(trained, $add($mul(2n, policy.bytes.weights), $mul(2n, policy.gradient_bytes)));
[every, again] = _traffic(shape, layout, place, batch_size, seq_len, replace(policy, {__proto__: $k, activation_checkpointing: "full"}));
repeated = $item(dict([["none", $tuple([])], ["selective", $tuple([Joins.CONTEXT])], ["full", tuple(Joins)]]), policy.activation_checkpointing);
sent = dict((function* ($first) { for (const group of $first) yield [group, $sub($item(every, group), ($in(group, repeated) ? 0n : $item(again, group)))]; })(Joins));
groups = [$tuple([Joins.TENSOR, int($item(sent, Joins.TENSOR)), layout.tensor, 1n]), $tuple([Joins.CONTEXT, int($item(sent, Joins.CONTEXT)), layout.context, layout.tensor]), $tuple([Joins.EXPERT, int($item(sent, Joins.EXPERT)), layout.expert, layout.tensor]), $tuple([Joins.PIPELINE, int($item(sent, Joins.PIPELINE)), layout.pipeline, $mul(layout.tensor, layout.replicas)])];
micro_batches = layout.micro_batches;
number = $tuple([Term(getattr(policy.bytes, "weights")), Term(getattr(policy, "gradient_bytes")), layout.zero, Term(micro_batches)]);
for (one of replicated(shape, layout, place)) {
copies = int(getattr(one, "devices"));
if ($gt(copies, 1n)) {
size = sum((function* ($first) { for (const term of $first) yield int(term); })(zero_traffic(one, ...number).values()));
groups.append($tuple([Joins.DATA, size, copies, $floordiv($mul(layout.tensor, layout.replicas), copies)]));
}
}
rings = $mul(dict([[3n, $mul(3n, micro_batches)], [2n, $add(1n, micro_batches)]]).get(getattr(layout, "zero"), 2n), $neg($floordiv($neg(shape.num_layers), layout.pipeline)));
[seconds, link_bytes, network_bytes] = $tuple([dict.fromkeys(Joins, 0.0), 0n, 0n]);
for ([group, size, members, stride] of groups) {
in_node = max(1n, min(members, $floordiv(interconnect.node_size, stride)));
[link, network] = _shares(size, members, stride, getattr(interconnect, "node_size"));
if (($is(group, Joins.EXPERT) && $true(network))) {
network = _between_nodes(size, members, in_node, max((function* ($first) { for (const one of $first) yield one.active; })(shape.ffns)));
}
$set(seconds, group, $add($item(seconds, group), max($div(link, interconnect.reached), $div(network, interconnect.network_reached))));
if ($is(group, Joins.DATA)) {
$set(seconds, group, $add($item(seconds, group), $mul(rings, interconnect.latency(members, in_node))));
}
[link_bytes, network_bytes] = $tuple([$add(link_bytes, link), $add(network_bytes, network)]);
}
matmul = $div($add($add(both, recomputed), slowed), $mul(peak, efficiency));
whole = replace(policy, {__proto__: $k, activation_checkpointing: "none"});
[inside, outside, ] = saved_bytes(shape, split, place, batch_size, seq_len, whole);
elementwise = $add($mul(inside, ($gt(shape.most_experts, 1n) ? EXPERT_PASSES : PASSES)), $mul(outside, PASSES));
if ($eq(policy.activation_checkpointing, "full")) {
elementwise = $mul(elementwise, $add(1n, RECOMPUTED_PASSES));
}
memory = $add(elementwise, weights);
memory_time = $div(memory, float(getattr(device, "known_bandwidth")));
expert = $div($item(seconds, Joins.EXPERT), micro_batches);
beside = $mul(HIDDEN, min(expert, $add(matmul, memory_time)));
return StepTime({__proto__: $k, matmul: Seconds(matmul), memory: Seconds(memory_time), tensor: Seconds($div($item(seconds, Joins.TENSOR), micro_batches)), context: Seconds($div($item(seconds, Joins.CONTEXT), micro_batches)), expert: Seconds($sub(expert, beside)), bubble: Seconds($div($item(seconds, Joins.PIPELINE), micro_batches)), data: Seconds($item(seconds, Joins.DATA)), optimizer: Seconds($div(_optimizer_bytes(shape, layout, place, policy), float(getattr(device, "known_bandwidth")))), attention: Seconds($div($div(scores, flash), $mul(peak, efficiency))), hidden: Seconds(beside), link_bytes: Bytes(link_bytes), network_bytes: Bytes(network_bytes)});
});
let _shares;
_shares = $def("_shares", "sent devices stride node_size", [], function (sent, devices, stride, node_size) {
let in_node;

in_node = ($le(stride, node_size) ? max(1n, min(devices, $floordiv(node_size, stride))) : 1n);
if ($ge(in_node, devices)) {
return $tuple([sent, 0n]);
}
return $tuple([($gt(in_node, 1n) ? sent : 0n), $floordiv(sent, in_node)]);
});
let _between_nodes;
_between_nodes = $def("_between_nodes", "sent devices in_node experts", [], function (sent, devices, in_node, experts) {
let nodes, reached;

nodes = $neg($floordiv($neg(devices), in_node));
reached = $mul($sub(nodes, 1n), $sub(1n, $pow($sub(1n, $div(1n, nodes)), experts)));
return round($div($mul(sent, reached), $div($mul(experts, $sub(devices, 1n)), devices)));
});
let saved_bytes;
saved_bytes = lru_cache({__proto__: $k, maxsize: $shl(1n, 12n)})($def("saved_bytes", "shape layout place batch_size seq_len policy", [], function (shape, layout, place, batch_size, seq_len, policy) {
let component, components, inside, outside, routers, run, saved, size, tensors;

run = device_forward_pass(shape, layout, place, batch_size, seq_len, policy);
components = [saved_by_layers(run, getattr(run.stack, "counts"))];
if ($eq(place.stage, $sub(layout.pipeline, 1n))) {
components.append(head_tensors(run));
}
inside = 0n;outside = inside;routers = inside;
for (saved of components) {
for ([component, tensors] of saved.items()) {
size = int(total_bytes(tensors));
if ($in(component, $tuple([Component.FFN_HIDDEN, Component.SHARED_FFN_HIDDEN]))) {
inside = $add(inside, size);
} else {
if (($is(component, Component.ROUTER) && $gt(shape.most_experts, 1n))) {
routers = $add(routers, size);
} else {
outside = $add(outside, size);
}
}
}
}
return $tuple([inside, outside, routers]);
}));
let _traffic;
_traffic = lru_cache({__proto__: $k, maxsize: $shl(1n, 12n)})($def("_traffic", "shape layout place batch_size seq_len policy", [], function (shape, layout, place, batch_size, seq_len, policy) {
let again, group, name, term, traffic;

traffic = device_traffic(shape, layout, place, batch_size, seq_len, {__proto__: $k, policy: policy});
again = dict.fromkeys(Joins, 0n);
for ([group, [name, term]] of zip(getattr(traffic, "joins"), getattr(traffic, "terms"), {__proto__: $k, strict: true})) {
$set(again, group, $add($item(again, group), ($true(name.endswith("recomputed")) ? int(term) : 0n)));
}
return $tuple([dict((function* ($first) { for (const [group, size] of $first) yield [group, int(size)]; })(traffic.by_group().items())), again]);
}));
let _flops;
_flops = lru_cache({__proto__: $k, maxsize: $shl(1n, 12n)})($def("_flops", "shape layout place batch_size seq_len pairs", [], function (shape, layout, place, batch_size, seq_len, pairs) {
let counted, flops;

counted = device_flops(shape, layout, place, batch_size, seq_len, {__proto__: $k, pairs: pairs});
flops = dict((function* ($first) { for (const name of $first) yield [name, int($item(counted, name))]; })(counted));
return $tuple([flops, $add(sum(flops.values()), sum(backward_terms(shape, flops).values()))]);
}));
let attention_kernel;
attention_kernel = $def("attention_kernel", "device", [], function (device) {

return ($true(device.name.startswith(FLASH3_DEVICES)) ? "flash3" : "flash2");
});
let _optimizer_bytes;
_optimizer_bytes = $def("_optimizer_bytes", "shape layout place policy", [], function (shape, layout, place, policy) {
let each, share, weight;

share = sum((function* ($first) { for (const one of $first) yield int(($true(layout.zero) ? shard_of(getattr(one, "trained"), getattr(one, "devices")) : one.trained)); })(replicated(shape, layout, place)));
weight = policy.bytes.weights;
each = $add($add($add($mul($mul(2n, 2n), policy.moment_bytes), weight), $mul(2n, weight)), ($true(policy.bytes.master_weights) ? 8n : 0n));
return $mul(share, each);
});
return {FLASH2, FLASH3, PASSES, HIDDEN, FP8, EXPERT_PASSES, EXPERT_WIDTH, KERNELS, FLASH3_DEVICES, OF_A_MICRO_BATCH, RECOMPUTED_PASSES, StepTime, step_time, _micro_batch, matmul_efficiency, _stage_time, _shares, _between_nodes, saved_bytes, _traffic, _flops, attention_kernel, _optimizer_bytes};
};
$modules["accounting.cluster.traffic"] = () => {
const Breakdown = $load("accounting.breakdown").Breakdown;
const Bytes = $load("accounting.units").Bytes;
const DEFAULT = $load("accounting.policy").DEFAULT;
const Enum = $load("enum").Enum;
const FIRST = $load("accounting.cluster.layout").FIRST;
const FfnDimensions = $load("accounting.counting.dimensions").FfnDimensions;
const LatentDimensions = $load("accounting.counting.dimensions").LatentDimensions;
const Symbol = $load("accounting.formula").Symbol;
const Term = $load("accounting.formula").Term;
const added = $load("accounting.formula").added;
const all_reduced = $load("accounting.cluster.zero").all_reduced;
const dataclass = $load("dataclasses").dataclass;
const device_forward_pass = $load("accounting.cluster.memory").device_forward_pass;
const ffn_layers = $load("accounting.counting.layers").ffn_layers;
const replicated = $load("accounting.cluster.device").replicated;
const replicated_parameters = $load("accounting.cluster.device").replicated_parameters;
const zero_traffic = $load("accounting.cluster.zero").zero_traffic;
let Joins;
Joins = $class("Joins", [Enum], false, [], ($c) => {
$c.TENSOR = "tensor";
$c.CONTEXT = "context";
$c.EXPERT = "expert";
$c.PIPELINE = "pipeline";
$c.DATA = "data";
});
let Traffic;
Traffic = $class("Traffic", [Breakdown], true, [["joins"]], ($c) => {
$c.by_group = $def("by_group", "self", [], function (self) {
let _, group, sums, term;

sums = dict.fromkeys(Joins, 0n);
for ([group, [, term]] of zip(getattr(self, "joins"), getattr(self, "terms"), {__proto__: $k, strict: true})) {
$set(sums, group, $add($item(sums, group), int(term)));
}
return dict((function* ($first) { for (const [group, size] of $first) yield [group, Bytes(size)]; })(sums.items()));
});
});
let device_traffic;
device_traffic = $def("device_traffic", "shape layout place= batch_size= seq_len= * policy=", [FIRST, 1n, null, DEFAULT], function (shape, layout, place, batch_size, seq_len, policy) {
let parts, run, terms;

run = device_forward_pass(shape, layout, place, batch_size, seq_len, policy);
parts = dict([[Joins.TENSOR, _tensor(run, shape, layout, place)], [Joins.CONTEXT, _context(run, layout)], [Joins.EXPERT, _expert(run, layout)], [Joins.PIPELINE, _pipeline(run, layout, place)], [Joins.DATA, _data(run, shape, layout, place)]]);
terms = [...(function* ($first) { for (const [group, sent] of $first) for (const [name, term] of sent.items()) yield $tuple([name, group, term]); })(parts.items())];
return Traffic(("" + "sent by stage " + $format(place.stage, "") + ", rank " + $format(place.tensor_rank, "") + " in a step"), Bytes, tuple((function* ($first) { for (const [name, , term] of $first) yield $tuple([name, term]); })(terms)), ("" + $format(policy.precision, "") + ", " + $format(layout.micro_batches, "") + " micro-batches of " + $format(batch_size, "") + "; ring collectives over shares padded to one size"), tuple((function* ($first) { for (const [, group, ] of $first) yield group; })(terms)));
});
let _micro_batches;
_micro_batches = $def("_micro_batches", "layout", [], function (layout) {
return Symbol("micro_batches", getattr(layout, "micro_batches"));
});
let _tensor;
_tensor = $def("_tensor", "run shape layout place", [], function (run, shape, layout, place) {
let collected, forward, in_backward, in_forward, latents, m, n, once, positions, read, replicas, sent, shared, steps, tp;

if ($eq(layout.tensor, 1n)) {
return dict([]);
}
[n, steps, tp, shared] = $tuple([run.n, _micro_batches(layout), Symbol("tp", getattr(layout, "tensor")), layout.sequence_parallel]);
positions = ($true(shared) ? $mul(run.between, tp) : run.tokens);
collected = $def("collected", "width", [], function (width) {

return $mul($sub(tp, 1n), $floordiv($add($mul(positions, width), $sub(tp, 1n)), tp));
});
once = collected(getattr(n, "d_model"));
[in_forward, in_backward] = $tuple([$mul(4n, once), $mul(($true(shared) ? 6n : 4n), once)]);
if ($isnot(shape.latent, null)) {
m = LatentDimensions(getattr(shape, "latent"));
read = $add($add(($isnot(shape.latent.q_rank, null) ? m.q_rank : n.d_model), m.kv_rank), m.rope_dim);
latents = collected(read);
in_forward = ($true(shared) ? $add($mul(3n, once), latents) : $mul(4n, once));
in_backward = $add($mul(($true(shared) ? 4n : 2n), once), $mul(2n, latents));
}
forward = $mul($mul($mul(steps, n.n_layers), in_forward), run.act);
sent = dict([["sums of layers, forward", forward], ["sums of layers, recomputed", ($eq(run.policy.activation_checkpointing, "full") ? forward : Term(0n))], ["sums of layers, backward", $mul($mul($mul(steps, n.n_layers), in_backward), run.act)]]);
if ($eq(place.stage, 0n)) {
$set(sent, "sum of embeddings", $mul(2n, $mul($mul(steps, once), run.residual)));
}
if ($eq(place.stage, $sub(layout.pipeline, 1n))) {
$set(sent, "gradient of the head's input", $mul($mul($mul(steps, ($true(shared) ? 3n : 2n)), once), run.act));
$set(sent, "softmax over the vocabulary", $mul(6n, $mul($mul(steps, 4n), $mul($sub(tp, 1n), $floordiv($add(run.tokens, $sub(tp, 1n)), tp)))));
}
if (($true(shared) || $isnot(shape.lora_rank, null))) {
replicas = Symbol("replicated_params", replicated_parameters(shape, layout, place));
$set(sent, "gradients of what is shared", $mul(all_reduced(replicas, tp), run.gradient));
}
return sent;
});
let _context;
_context = $def("_context", "run layout", [], function (run, layout) {
let cp, forward, keys_and_values, m, n, recomputed, width;

if ($eq(layout.context, 1n)) {
return dict([]);
}
[n, cp] = $tuple([run.n, Symbol("cp", getattr(layout, "context"))]);
width = $mul($mul(2n, n.n_kv_heads), n.head_dim);
if ($isnot(run.shape.latent, null)) {
m = LatentDimensions(getattr(run.shape, "latent"));
width = $mul(n.n_heads, $add($add(m.nope_dim, m.rope_dim), m.value_dim));
}
keys_and_values = $mul($mul(run.tokens, width), run.act);
forward = $mul($mul($mul(_micro_batches(layout), n.n_layers), $sub(cp, 1n)), keys_and_values);
recomputed = $ne(run.policy.activation_checkpointing, "none");
return dict([["keys and values, forward", forward], ["keys and values, recomputed", ($true(recomputed) ? forward : Term(0n))], ["keys, values and their gradients, backward", $mul(2n, forward)]]);
});
let _expert;
_expert = $def("_expert", "run layout", [], function (run, layout) {
let ep, forward, n;

if ($eq(layout.expert, 1n)) {
return dict([]);
}
[n, ep] = $tuple([run.n, Symbol("ep", getattr(layout, "expert"))]);
forward = added((function* ($first) { for (const [ffn, layers] of $first) if ($isnot(ffn.experts, null)) yield $mul($mul($mul($mul(_micro_batches(layout), layers), 2n), $mul($sub(ep, 1n), $floordiv($add($mul($mul(run.between, FfnDimensions(getattr(run, "shape"), ffn).active_experts), n.d_model), $sub(ep, 1n)), ep))), run.act); })(ffn_layers(getattr(run, "shape")).items()));
return dict([["tokens to experts and back, forward", forward], ["tokens to experts and back, recomputed", ($eq(run.policy.activation_checkpointing, "full") ? forward : Term(0n))], ["tokens to experts and back, backward", forward]]);
});
let _pipeline;
_pipeline = $def("_pipeline", "run layout place", [], function (run, layout, place) {
let first, last, n, passed, sent, steps;

[n, steps, sent] = $tuple([run.n, _micro_batches(layout), dict([])]);
[first, last] = $tuple([$eq(place.stage, 0n), $eq(place.stage, $sub(layout.pipeline, 1n))]);
passed = $mul($mul(run.between, n.d_model), run.residual);
if (!$true(last)) {
$set(sent, "to the next stage", $mul(steps, passed));
}
if (!$true(first)) {
$set(sent, "gradient to the stage before", $mul(steps, passed));
}
if (($true(run.shape.tied_embeddings) && $gt(layout.pipeline, 1n) && ($true(first) || $true(last)))) {
$set(sent, "gradient of the tied embedding", $mul(all_reduced($mul(n.vocab, n.d_model), Term(2n)), run.gradient));
}
return sent;
});
let _data;
_data = $def("_data", "run shape layout place", [], function (run, shape, layout, place) {
let one, sent, sizes;

sent = dict([]);
for (one of replicated(shape, layout, place)) {
if ($gt(int(getattr(one, "devices")), 1n)) {
sizes = zero_traffic(one, getattr(run, "weight"), getattr(run, "gradient"), getattr(layout, "zero"), _micro_batches(layout));
sent = dict((function* ($first) { for (const [name, size] of $first) yield [name, ($in(name, sent) ? $add($item(sent, name), size) : size)]; })(sizes.items()));
}
}
return sent;
});
return {Joins, Traffic, device_traffic, _micro_batches, _tensor, _context, _expert, _pipeline, _data};
};
$modules["accounting.hardware.interconnect"] = () => {
const ByteRate = $load("accounting.units").ByteRate;
const ROWS = $load("accounting.hardware.devices").ROWS;
const dataclass = $load("dataclasses").dataclass;
const positive = $load("accounting.checks").positive;
let UNKNOWN;
UNKNOWN = ByteRate(0.0);
let COLLECTIVE;
COLLECTIVE = 0.8;
let LINK_HOP, NETWORK_HOP;
[LINK_HOP, NETWORK_HOP] = $tuple([3.4e-06, 9.6e-06]);
let LARGEST_RING;
LARGEST_RING = 72n;
let Interconnect;
Interconnect = $class("Interconnect", [], true, [["node_size"], ["link"], ["network"], ["source"], ["measured", UNKNOWN]], ($c) => {
$c.__post_init__ = $def("__post_init__", "self", [], function (self) {
let name;
positive("node_size", getattr(self, "node_size"));
for (name of $tuple(["link", "network"])) {
if (!($lt(0n, float(getattr(self, name))) && $lt(float(getattr(self, name)), float("inf")))) {
throw ValueError(("" + "expected " + $format(name, "") + " above 0 bytes a second, got " + $format(float(getattr(self, name)), ("" + "g"))));
}
}
});
$c.reached = property($def("reached", "self", [], function (self) {

return $or(float(getattr(self, "measured")), () => $mul(COLLECTIVE, float(getattr(self, "link"))));
}));
$c.network_reached = property($def("network_reached", "self", [], function (self) {

return $mul(COLLECTIVE, float(getattr(self, "network")));
}));
$c.latency = $def("latency", "self devices in_node", [], function (self, devices, in_node) {
let nodes;

if ($gt(self.node_size, LARGEST_RING)) {
return 0.0;
}
nodes = $neg($floordiv($neg(devices), in_node));
return $add($mul($sub(devices, nodes), LINK_HOP), $mul($sub(nodes, 1n), NETWORK_HOP));
});
});
let _from_row;
_from_row = $def("_from_row", "row", [], function (row) {
return Interconnect({__proto__: $k, node_size: int($item(row, "node size")), link: ByteRate($mul(float($item(row, "link GB/s")), 1000000000.0)), network: ByteRate($div($mul(float($item(row, "network Gb/s")), 1000000000.0), 8n)), source: "; measured: ".join(filter(null, $tuple([$item(row, "interconnect source"), $item(row, "link measured source")]))), measured: ByteRate($mul(float($or($item(row, "link measured GB/s"), () => 0n)), 1000000000.0))});
});
let ALONE;
ALONE = Interconnect(1n, ByteRate(1.0), ByteRate(1.0), "a device alone sends nothing");
let INTERCONNECTS;
INTERCONNECTS = dict((function* ($first) { for (const row of $first) if ($true($item(row, "node size"))) yield [$item(row, "name"), _from_row(row)]; })(ROWS));
return {UNKNOWN, COLLECTIVE, LINK_HOP, NETWORK_HOP, LARGEST_RING, Interconnect, _from_row, ALONE, INTERCONNECTS};
};
const accounting = { choices: $load("accounting.page.questions").choices, answer: $load("accounting.page.questions").answer, largest: $load("accounting.page.questions").largest };
