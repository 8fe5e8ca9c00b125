"""Chat templates as models publish them, and what their files say beside."""

# Templates with the constructs that published ones have: loops and their variables, namespaces, macros, trimming,
# slices, tojson, defaults, {% generation %}, exceptions, and what earlier turns look like where the model thinks.
CHATML = """{% for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}"""
LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Knowledge: " + (date_string | default("none")) + "\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim
        + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""
QWEN3 = """{%- if tools %}{{- tools | tojson }}{%- endif %}
{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(last=messages|length - 1, seeking=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.seeking and message.role == "user" and message.content is string %}
        {%- set ns.seeking = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}{%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n')
                + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("conversation roles must alternate user and assistant roles") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- endif %}
{%- endfor %}"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception(
'System role not supported') }}{% endif %}
{%- macro turn(role, content) -%}<start_of_turn>{{ role }}
{{ content | trim }}<end_of_turn>
{% endmacro -%}
{%- for message in messages -%}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif -%}
{%- if message['role'] == 'assistant' -%}{% set role = 'model' %}{%- else
-%}{% set role = message['role'] %}{%- endif -%}
{{ turn(role, message['content']) }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"""
DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{%- set ns = namespace(system='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system = message['content'] %}{%- endif %}
{%- endfor %}
{{- bos_token }}{{ ns.system }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{- '<|User|>' + message['content'] }}{%- endif %}
{%- if message['role'] == 'assistant' %}
{%- set content = message['content'] %}
{%- if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
{%- generation %}{{- '<|Assistant|>' + content + '<|end_of_sentence|>' }}{%- endgeneration %}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|Assistant|>' }}{%- endif %}"""

# name: template, special tokens, names, the ids of generation_config by their tokens, whether a system's message is
# refused
FAMILIES = {
    "chatml": (CHATML, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"eos_token": "<|im_end|>"}, ["<|im_end|>"]),
    "llama3": (
        LLAMA3,
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        ["<|end_of_text|>", "<|eot_id|>"],
    ),
    "qwen3": (
        QWEN3,
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
        {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        ["<|im_end|>", "<|endoftext|>"],
    ),
    "mistral": (MISTRAL, ["<s>", "</s>", "[INST]", "[/INST]"], {"bos_token": "<s>", "eos_token": "</s>"}, ["</s>"]),
    "gemma": (
        GEMMA,
        ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
        {"bos_token": "<bos>", "eos_token": "<eos>"},
        ["<eos>", "<end_of_turn>"],
    ),
    "deepseek": (
        DEEPSEEK,
        ["<|begin_of_sentence|>", "<|end_of_sentence|>", "<|User|>", "<|Assistant|>"],
        {"bos_token": "<|begin_of_sentence|>", "eos_token": "<|end_of_sentence|>"},
        ["<|end_of_sentence|>"],
    ),
}

# Templates that write the tokens which begin or end a text inside of a conversation, or behind it: of TinyLlama and
# OLMo 2 as published, of Llama 2 without the system's message, of Phi-3 shortened.
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
LLAMA2 = """{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{
raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{%
if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}{%
elif message['role'] == 'assistant' %}{{ ' '  + message['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
OLMO2 = """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>
' + message['content'] + '
' }}{% elif message['role'] == 'user' %}{{ '<|user|>
' + message['content'] + '
' }}{% elif message['role'] == 'assistant' %}{% if not loop.last %}{{ '<|assistant|>
'  + message['content'] + eos_token + '
' }}{% else %}{{ '<|assistant|>
'  + message['content'] + eos_token }}{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>
' }}{% endif %}{% endfor %}"""
PHI3 = """{% for message in messages %}{{ '<|' + message['role'] + '|>
' + message['content'] + '<|end|>
' }}{% endfor %}{%
if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""
ENDS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
ENDS_INSIDE = {
    "tinyllama": (ZEPHYR, ["<unk>", "<s>", "</s>"], {**ENDS, "pad_token": "</s>"}),
    "llama2": (LLAMA2, ["<unk>", "<s>", "</s>"], ENDS),
    "olmo2": (
        OLMO2,
        ["<|endoftext|>", "<|pad|>"],
        {**dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"), "pad_token": "<|pad|>"},
    ),
    "phi3": (
        PHI3,
        ["<s>", "</s>", "<|endoftext|>", "<|assistant|>", "<|end|>", "<|user|>"],
        {"bos_token": "<s>", "eos_token": "<|endoftext|>"},
        ["<|endoftext|>", "<|end|>"],
    ),
}


def marked(start: str, user: str, user_end: str, assistant: str, answer: str, answer_end: str) -> str:
    """A template with {% generation %} around answers: what is before and after a user's message, and an answer."""
    turn = f"{assistant}{{% generation %}}{answer}{{{{ m.content }}}}{answer_end}{{% endgeneration %}}"
    turns = f"{{% if m.role == 'user' %}}{user}{{{{ m.content }}}}{user_end}{{% else %}}{turn}{{% endif %}}"
    template = f"{start}{{% for m in messages %}}{turns}{{% endfor %}}"
    return template.replace("\n", "{{ '\\n' }}")  # jinja removes a line end behind a statement


# The formats of six models, and what is learned of TWO_TURNS, between ⟦ and ⟧: by the masks of trl 1.16.0, that is
# apply_chat_template(TWO_TURNS, return_assistant_tokens_mask=True) with the file NAME_training.jinja of its folder
# chat_templates. The system message that qwen2_5 adds is
# shortened.
TWO_TURNS = [
    {"role": "user", "content": "1 yes?"},
    {"role": "assistant", "content": "12 sure."},
    {"role": "user", "content": "so on"},
    {"role": "assistant", "content": "indeed! yes"},
]
CHATML_TURNS = "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n", "", "<|im_end|>\n"
END = "{% if loop.last %}<|end_of_text|>{% endif %}"
USER = "{% if loop.first %}<|user|>{% endif %}"
MARKED = {
    "deepseekv3": (
        marked("<|begin_of_text|>", "<｜User｜>", "", "", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        "<|begin_of_text|><｜User｜>1 yes?⟦<｜Assistant｜>12 sure.<｜end▁of▁sentence｜>⟧"
        "<｜User｜>so on⟦<｜Assistant｜>indeed! yes<｜end▁of▁sentence｜>⟧",
    ),
    "glm4moe": (
        marked("[gMASK]<sop>", f"{USER}\n", "", "<|assistant|>", "\n<think></think>\n", "<|user|>"),
        "[gMASK]<sop><|user|>\n1 yes?<|assistant|>⟦\n<think></think>\n12 sure.<|user|>⟧"
        "\nso on<|assistant|>⟦\n<think></think>\nindeed! yes<|user|>⟧",
    ),
    "llama3": (
        marked(
            "<|begin_of_text|>",
            "<|start_header_id|>user<|end_header_id|>\n\n",
            "<|eot_id|>",
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "",
            "<|eot_id|>",
        ),
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n1 yes?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n⟦12 sure.<|eot_id|>⟧"
        "<|start_header_id|>user<|end_header_id|>\n\nso on<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n⟦indeed! yes<|eot_id|>⟧",
    ),
    "nemotron_3_nano": (
        marked("<|im_start|>system\n<|im_end|>\n", *CHATML_TURNS[:3], "<think></think>", "<|im_end|>\n"),
        "<|im_start|>system\n<|im_end|>\n"
        "<|im_start|>user\n1 yes?<|im_end|>\n<|im_start|>assistant\n⟦<think></think>12 sure.<|im_end|>\n⟧"
        "<|im_start|>user\nso on<|im_end|>\n<|im_start|>assistant\n⟦<think></think>indeed! yes<|im_end|>\n⟧",
    ),
    "phi3": (
        marked("", "<|user|>\n", "<|end|>\n", "<|assistant|>\n", "", f"<|end|>\n{END}"),
        "<|user|>\n1 yes?<|end|>\n<|assistant|>\n⟦12 sure.<|end|>\n⟧"
        "<|user|>\nso on<|end|>\n<|assistant|>\n⟦indeed! yes<|end|>\n<|end_of_text|>⟧",
    ),
    "qwen2_5": (
        marked(
            "<|im_start|>system\nYou are Qwen.<|im_end|>\n",
            *CHATML_TURNS[:2],
            "<|im_start|>assistant",
            "\n",
            "<|im_end|>\n",
        ),
        "<|im_start|>system\nYou are Qwen.<|im_end|>\n"
        "<|im_start|>user\n1 yes?<|im_end|>\n<|im_start|>assistant⟦\n12 sure.<|im_end|>\n⟧"
        "<|im_start|>user\nso on<|im_end|>\n<|im_start|>assistant⟦\nindeed! yes<|im_end|>\n⟧",
    ),
}
