#!/usr/bin/env python3
"""usage: tools/check_chat.py [--build DIR] [--count N] [--seed S] [--templates DIR] [WHAT ...]

Compares chat templates with transformers and jinja2 (needs both; no network). WHAT is one of

  expressions    random expressions, with values of every kind (the default count is 20000)
  blocks         random statements: loops, assignments, macros, captured text, whitespace control
  case           upper, lower, title, capitalize and the tests of case, for each character
  families       the library's own templates of known families, against chatml.jinja, gemma.jinja,
                 llama3.jinja, qwen2.5.jinja and zephyr.jinja in the folder --templates
  conversations  each template *.jinja in the folder --templates, on random conversations (the
                 default count is 200 for each template)

The default is all of them; the last two only if --templates is given. With --write FILE, a few
conversations for each template are written there with their texts, for tests/text/chat/test_chat.c. Build
first: `make build/libfsdp.a`. The program counts as equal: the same text, or an error in both. What is
refused as unsupported is counted by its message.
"""
import argparse
import collections
import glob
import json
import os
import random
import re
import subprocess
import sys
import warnings

import transformers
from transformers.utils import chat_template_utils

# Python warns about templates such as {{ (1)[2:] }}.
warnings.simplefilter("ignore", SyntaxWarning)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def build_program(build):
    """Compile tools/chat_program.c with the library in `build`."""
    program = os.path.join(ROOT, build, "chat_program")
    libs = subprocess.run(["pkg-config", "--libs", "jansson", "libutf8proc"], capture_output=True, text=True)
    subprocess.run(
        ["cc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-I.", "-Iinclude", "-o", program, "tools/chat_program.c",
         f"{build}/libfsdp.a", *(libs.stdout.split() or ["-ljansson", "-lutf8proc"]), "-lm", "-lpthread",
         *os.environ.get("CHAT_LDFLAGS", "").split()],
        cwd=ROOT, check=True)
    return program


class Ours:
    """The program, which answers one line for each line."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def render(self, template, variables, key="template"):
        self.process.stdin.write(json.dumps({key: template, "variables": variables}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended at {template!r}")
        return json.loads(line)


def compile_with_jinja(template):
    return chat_template_utils._compile_jinja_template(template)


def render_with_jinja(template, variables):
    """Return the text, or the exception."""
    try:
        return compile_with_jinja(template).render(**variables)
    except Exception as error:  # noqa: BLE001: any error of the template counts
        return error


class Result:
    """Counts what was equal, and keeps the first differences."""

    def __init__(self, name):
        self.name, self.equal, self.errors = name, 0, 0
        self.refused, self.different = collections.Counter(), []

    def add(self, template, variables, ours, theirs):
        error = ours.get("error")
        if isinstance(theirs, str) and " at 0x" in theirs:
            theirs = ValueError("the address of an object")
        if error is not None and "cannot be sliced" in error:
            # jinja2 computes constants ahead, by other rules: {{ (1)[2:] }} is undefined.
            theirs = ValueError(theirs)
        if isinstance(theirs, Exception):
            if error is None:
                self.different.append((template, variables, ours["text"], repr(theirs)))
            else:
                self.errors += 1
        elif error is None:
            if ours["text"] == theirs:
                self.equal += 1
            else:
                self.different.append((template, variables, ours["text"], theirs))
        elif error.startswith("UNSUPPORTED"):
            self.refused[error.split(": ", 2)[-1][:60]] += 1
        else:
            self.different.append((template, variables, error, theirs))

    def report(self, show):
        print(f"{self.name}: {self.equal} equal, {self.errors} errors in both, "
              f"{sum(self.refused.values())} refused, {len(self.different)} different")
        for message, n in self.refused.most_common(show):
            print(f"    refused {n}: {message}")
        for template, variables, ours, theirs in self.different[:show]:
            print(f"  template {template!r}\n    with {json.dumps(variables)[:300]}\n"
                  f"    ours   {ours!r}\n    theirs {theirs!r}")
        return not self.different


# ---- random expressions ----------------------------------------------------------------------------

VARIABLES = {
    "s": "Hello, wörld's \"text\"\n  line two  ", "e": "", "w": "  padded \t", "n": 42, "z": 0, "m": -7, "f": 2.5,
    "g": -0.125, "t": True, "u": False, "none_value": None, "l": [3, 1, 2], "names": ["b", "A", "c", "a"],
    "empty": [], "d": {"a": 1, "b": [1, 2], "key with space": "x", "items": 5}, "nested": {"x": {"y": [{"z": "deep"}]}},
    "people": [{"name": "Zoé", "age": 3}, {"name": "abe", "age": 30}, {"name": "Bob", "age": 3, "tags": ["q"]}],
    "big": 123456789012345678901234567890, "uni": "naïve ﬁ İ ß Σας 😀 ǆ",
}
TEXTS = ["a", "", "l", "lo", " ", "\n", "é", "😀", "ab,cd,,e", "x-y z", "Hello", "42", "-3.5", " 7 ", "0x1f", "1_000", "abc\tdef"]
METHODS = ["strip()", "lstrip()", "rstrip()", "upper()", "lower()", "title()", "capitalize()", "split()", "isdigit()",
           "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "splitlines()", "items()", "keys()",
           "values()", "strip('H ')", "split('l')", "split(',')", "split(',', 1)", "rsplit(None, 1)", "rsplit('l', 1)",
           "startswith('H')", "endswith(('t', ' '))", "find('l')", "rfind('l')", "count('l')", "replace('l', 'LL')",
           "replace('', '-')", "replace('l', '', 1)", "get('a')", "get('zz', 5)", "get('zz')", "join(names)",
           "join(['x', 'y'])", "index(1)", "partition(',')", "rpartition('l')", "removeprefix('He')",
           "removesuffix('  ')", "center(20, '*')", "ljust(5)", "rjust(30, '.')", "splitlines(true)", "copy()",
           "append(1)", "isprintable()", "isascii()", "count(1)", "find('l', 3)", "find('l', -3, -1)"]
FILTERS = ["trim", "upper", "lower", "length", "count", "title", "capitalize", "join", "join(', ')", "first", "last",
           "list", "string", "int", "float", "abs", "round", "round(1)", "sum", "min", "max", "reverse", "sort",
           "sort(reverse=true)", "unique", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)",
           "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "default('x')", "d('y', true)", "items",
           "dictsort", "dictsort(by='value')", "map('upper')", "map('length')", "map(attribute='name')",
           "map(attribute='age', default=0)", "selectattr('age')", "selectattr('age', 'equalto', 3)",
           "rejectattr('name', 'eq', 'Bob')", "select('string')", "reject('none')", "select", "select('odd')",
           "indent", "indent(2, true)", "indent('> ', blank=true)", "replace('l', 'L')", "batch(2)",
           "batch(2, 'f')", "slice(2)", "wordcount", "truncate(8)", "truncate(9, true, '!', 0)", "center(30)",
           "escape", "safe", "urlencode", "sort(attribute='age')", "sort(attribute='age,name')", "min(attribute='age')",
           "unique(attribute='age')", "sum(attribute='age')", "join('-', attribute='name')", "round(2, 'floor')",
           "int(7)", "int(base=16)", "float(1.5)", "trim('x ')", "map('default', 'q')", "sum(start=10)",
           "round(method='ceil')", "sort(case_sensitive=true)", "count"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float",
         "boolean", "true", "false", "callable", "odd", "even", "divisibleby 3", "equalto 42", "eq(2.5)", "ne 3",
         "gt 2", "ge(2)", "lt 2", "le 2", "in l", "in([1, 42])", "upper", "lower", "sameas true", "not defined",
         "not none", "not string", "in 'Hello'"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Expressions:
    def __init__(self, rng):
        self.rng = rng

    def literal(self):
        rng = self.rng
        return rng.choice([
            lambda: str(rng.choice([0, 1, 2, 3, 5, 10, 42, 1000])), lambda: rng.choice(["1.5", "0.1", "2.0", "1e3", "3.25"]),
            lambda: repr(rng.choice(TEXTS)) if rng.random() < 0.5 else json.dumps(rng.choice(TEXTS), ensure_ascii=False),
            lambda: rng.choice(["true", "false", "none", "True", "None"]),
            lambda: rng.choice(list(VARIABLES) + ["missing", "range(5)", "namespace(a=1)", "dict(q=2)"]),
            lambda: rng.choice(list(VARIABLES)),
        ])()

    def make(self, depth):
        rng = self.rng
        if depth <= 0 or rng.random() < 0.15:
            return self.literal()
        one = lambda: self.make(depth - 1)  # noqa: E731
        kind = rng.randrange(13)
        if kind == 0:
            return f"({one()} {rng.choice(BINARY)} {one()})"
        if kind == 1:
            return f"{one()} {rng.choice(BINARY)} {one()}"
        if kind in (2, 3):
            return f"({one()}).{rng.choice(METHODS)}"
        if kind in (4, 5, 6):
            return f"{one()}|{rng.choice(FILTERS)}"
        if kind == 7:
            return f"({one()}) is {rng.choice(TESTS)}"
        if kind == 8:
            return f"({one()})[{rng.choice([one(), '0', '-1', '1:', ':2', '::-1', '1:3', '-2:', '::2'])}]"
        if kind == 9:
            return rng.choice([f"[{one()}, {one()}]", f"({one()}, {one()})", f"{{'k': {one()}, {one()}: 1}}", f"({one()},)"])
        if kind == 10:
            return f"({one()} if {one()} else {one()})"
        if kind == 11:
            return f"{rng.choice(['not ', '-', '+'])}{one()}"
        return f"({one()}).{rng.choice(['a', 'b', 'name', 'items', 'x.y', 'nope', '0'])}"


def check_expressions(ours, count, rng):
    result = Result("expressions")
    maker = Expressions(rng)
    for _ in range(count):
        template = "{{ " + maker.make(rng.randrange(1, 5)) + " }}"
        theirs = render_with_jinja(template, VARIABLES)
        result.add(template, {}, ours.render(template, VARIABLES), theirs)
    return result


# ---- random statements -----------------------------------------------------------------------------


class Blocks:
    """Templates of nested statements over few names, so that scopes meet."""

    NAMES = ["x", "y", "n", "l", "q"]

    def __init__(self, rng):
        self.rng, self.expressions = rng, Expressions(rng)

    def expression(self):
        rng = self.rng
        if rng.random() < 0.75:
            return rng.choice([rng.choice(self.NAMES), f"{rng.choice(self.NAMES)}|default('-')", "loop.index|default(0)",
                               f"{rng.choice(self.NAMES)} ~ '{rng.choice('abc')}'", "ns.v", "ns.v ~ 'v'", "[1, 2]|length",
                               f"{rng.choice(self.NAMES)} is defined", "m(1)", "m(x, b=2)", "m()", "loop.last", "caller()"])
        return self.expressions.make(1)

    def tag(self, inner, block=True):
        rng = self.rng
        left, right = rng.choice(["", "", "-", "+"]), rng.choice(["", "", "-", "+"] if block else ["", "-"])
        return "{%" + left + " " + inner + " " + right + "%}"

    def text(self):
        return self.rng.choice(["", " ", "\n", "text", "  a\n  ", "\n\n", "b ", "\t\n", "{# c #}", "{#- c -#}", "é\n", "  {# c #}\n"])

    def body(self, depth):
        return "".join(self.piece(depth) for _ in range(self.rng.randrange(1, 4)))

    def piece(self, depth):
        rng, tag = self.rng, self.tag
        text = self.text()
        kind = rng.randrange(14) if depth > 0 else rng.randrange(4)
        name = rng.choice(self.NAMES)
        if kind < 2:
            return text + "{{" + rng.choice(["", "-", "+"]) + " " + self.expression() + " " + rng.choice(["", "-"]) + "}}" + self.text()
        if kind == 2:
            target = rng.choice([name, name, "ns.v", f"{name}, y", f"{name}, ns.v"])
            value = self.expression() if "," not in target else rng.choice(["(1, 2)", "'ab'", "1, 2"])
            return text + tag(f"set {target} = {value}") + self.text()
        if kind == 3:
            return text
        inner = self.body(depth - 1)
        if kind in (4, 5):
            other = rng.choice(["", tag("else") + self.body(depth - 1), tag(f"elif {self.expression()}") + self.body(depth - 1)])
            return text + tag(f"if {self.expression()}") + inner + other + tag("endif") + self.text()
        if kind in (6, 7, 8):
            test = rng.choice(["", "", f" if {self.expression()}"])
            source = rng.choice(["[1, 2, 3]", "range(2)", "'ab'", "l", "[]", "d.items()", "names|select('upper')", "missing"])
            target = rng.choice([name, name, "q, x"]) if "items" in source else name
            jump = rng.choice(["", "", tag("break"), tag("continue"), tag("if loop.index == 2") + tag("break") + tag("endif")])
            other = rng.choice(["", tag("else") + self.body(depth - 1)])
            return text + tag(f"for {target} in {source}{test}") + inner + jump + self.text() + other + tag("endfor") + self.text()
        if kind == 9:
            return text + tag(f"set {rng.choice([name, 'ns.v'])}{rng.choice(['', ' | upper', ' | trim'])}") + inner + tag("endset")
        if kind == 10:
            signature = rng.choice(["a", "a, b=x", "x, y=3", "a=1, b=n", ""])
            return text + tag(f"macro m({signature})") + inner + "{{ a }}{{ b }}" + rng.choice(["", "{{ varargs }}", "{{ kwargs }}"]) + tag("endmacro")
        if kind == 11:
            return text + tag(f"filter {rng.choice(['upper', 'trim', 'replace(1, 2)'])}") + inner + tag("endfilter")
        if kind == 12:
            return text + tag(f"with {name} = {self.expression()}, y = 5") + inner + tag("endwith")
        return text + tag(rng.choice(["call m(1)", "call(q) m(2)", "call m()"])) + inner + tag("endcall")

    def make(self):
        body = self.body(3)
        return "{% set ns = namespace(v=0) %}" + self.rng.choice(["", "{% macro m(a, b='B') %}[{{ a }}{{ b }}{{ x }}]{% endmacro %}",
                                                                 "{% macro m(a) %}<{{ a }}{{ caller('C') }}>{% endmacro %}"]) + body


def check_blocks(ours, count, rng):
    result = Result("blocks")
    maker = Blocks(rng)
    for _ in range(count):
        template = maker.make()
        variables = {k: v for k, v in VARIABLES.items() if rng.random() < 0.8}
        theirs = render_with_jinja(template, variables)
        result.add(template, variables, ours.render(template, variables), theirs)
    return result


# ---- case ------------------------------------------------------------------------------------------


def check_case(ours, count, rng):
    """Blocks of 64 characters. Characters newer than Python's Unicode are left out."""
    import unicodedata
    result = Result("case")
    points = [c for c in range(1, 0x20000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
    template = ("{% for c in t %}{{ c.upper() }}{{ c.lower() }}{{ c.title() }}{{ c.capitalize() }}{{ c.isalpha() }}"
                "{{ c.isdigit() }}{{ c.isupper() }}{{ c.islower() }}{{ c.isspace() }}{{ c.isalnum() }}"
                "{{ c.isdecimal() }}{{ c.isprintable() }}{{ [c] }}{% endfor %}{{ t.title() }}{{ t.lower() }}"
                "{{ t|title }}{{ t|capitalize }}{{ t.split() }}{{ t.splitlines() }}{{ t|trim }}")
    for i in range(0, len(points), 64):
        variables = {"t": "".join(map(chr, points[i:i + 64]))}
        result.add(template, variables, ours.render(template, variables), render_with_jinja(template, variables))
    for _ in range(2000):
        variables = {"t": "".join(rng.choice("ΣσςaΑ'.\u0301 İßǆﬁ-\u00ad:9") for _ in range(rng.randrange(12)))}
        result.add(template, variables, ours.render(template, variables), render_with_jinja(template, variables))
    return result


# ---- conversations ---------------------------------------------------------------------------------

WORDS = ["hello", "What is", "the weather", "in Paris?", "42", "\n", "  ", "naïve", "日本語", "😀", "<|im_end|>", "</s>", "[INST]",
         "{{ x }}", "{% if %}", "'quoted'", '"double"', "\\n", "<think>", "</think>", "step by step", "\t", "code:\n\n    x = 1\n"]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the \"weather\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "the city"},
                                         "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Add é", "parameters": {
        "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "minimum": 0.5}}, "required": []},
        "return": {"type": "number", "description": "sum"}}},
]


class Conversations:
    def __init__(self, rng):
        self.rng = rng

    def text(self):
        return " ".join(self.rng.choice(WORDS) for _ in range(self.rng.randrange(0, 8)))

    def content(self):
        roll = self.rng.random()
        if roll < 0.85:
            return self.text()
        return [{"type": "text", "text": self.text()} for _ in range(self.rng.randrange(1, 3))]

    def assistant(self):
        rng = self.rng
        message = {"role": "assistant", "content": self.content()}
        if rng.random() < 0.15:
            message["content"] = rng.choice([None, "", self.text()])
            message["tool_calls"] = [{"id": f"call{i:05d}", "type": "function", "function": {
                "name": "add", "arguments": rng.choice([{"a": 1, "b": 2.5}, {}, {"q": ["x", None, True]}, '{"a": 1}'])}}
                for i in range(rng.randrange(1, 3))]
        if rng.random() < 0.1:
            message["reasoning_content"] = self.text()
        return message

    def make(self, plain):
        """Half of the conversations are plain, as all templates take them: texts, alternating roles, no tools."""
        rng = self.rng
        messages = []
        if rng.random() < (0.3 if plain else 0.5):
            messages.append({"role": "system", "content": self.text() if plain else self.content()})
        for _ in range(rng.randrange(1, 4)):
            messages.append({"role": "user", "content": self.text() if plain else self.content()})
            if plain:
                messages.append({"role": "assistant", "content": self.text()})
            elif rng.random() < 0.85:
                messages.append(self.assistant())
                if "tool_calls" in messages[-1] and rng.random() < 0.8:
                    for call in messages[-1]["tool_calls"]:
                        messages.append({"role": "tool", "name": "add", "tool_call_id": call["id"], "content": rng.choice([self.text(), "3.5"])})
                    if rng.random() < 0.7:
                        messages.append(self.assistant())
        if plain and rng.random() < 0.4:
            messages.pop()
        elif not plain and rng.random() < 0.1:
            rng.shuffle(messages)
        return messages

    def variables(self):
        rng = self.rng
        plain = rng.random() < 0.5
        given = {"messages": self.make(plain), "tools": None, "documents": None, "add_generation_prompt": rng.random() < 0.5,
                 "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        if not plain and rng.random() < 0.5:
            given["tools"] = rng.sample(TOOLS, rng.randrange(1, 3))
        if rng.random() < 0.1:
            given["documents"] = [{"title": "T", "text": self.text()}]
        if rng.random() < 0.2:
            given[rng.choice(["enable_thinking", "custom_tools", "date_string", "builtin_tools"])] = rng.choice([True, False, "26 Jul 2024"])
        for name in ("bos_token", "unk_token", "pad_token"):
            if rng.random() < 0.1:
                del given[name]
        return given


def check_conversations(ours, templates, count, rng):
    for path in sorted(glob.glob(os.path.join(templates, "*.jinja"))):
        with open(path, encoding="utf-8") as file:
            template = file.read()
        result = Result(os.path.basename(path))
        maker = Conversations(rng)
        for _ in range(20 * count):  # until `count` conversations were rendered
            variables = maker.variables()
            theirs, spans = render_through_transformers(template, variables)
            answer = ours.render(template, normalized(variables))
            result.add("", variables, answer, theirs)
            if "text" in answer and answer.get("spans") != spans:
                result.different.append(("", variables, answer.get("spans"), spans))
            if result.equal + len(result.different) >= count:
                break
        yield result


def check_families(ours, templates, count, rng):
    """Plain conversations. Only qwen2.5 takes tools; gemma takes a system message, and the original does not."""
    for family in ("chatml", "gemma", "llama3", "qwen2.5", "zephyr"):
        path = os.path.join(templates, family + ".jinja")
        if not os.path.exists(path):
            print(f"{family}: no {path}")
            continue
        with open(path, encoding="utf-8") as file:
            template = file.read()
        result = Result(f"family {family}")
        maker = Conversations(rng)
        while result.equal + len(result.different) < count:
            variables = maker.variables()
            if family != "qwen2.5":
                variables["tools"] = None
            variables["bos_token"] = "<s>"
            theirs, _ = render_through_transformers(template, variables)
            calls = any("tool_calls" in m or m["role"] == "tool" for m in variables["messages"])
            if family == "gemma" and any(m["role"] == "system" for m in variables["messages"]):
                continue
            if isinstance(theirs, Exception) or (calls and family != "qwen2.5"):
                continue
            if any(not isinstance(m.get("content") or "", str) for m in variables["messages"]):
                continue  # parts
            result.add(family, variables, ours.render(family, normalized(variables), "family"), theirs)
        yield result


def masked_ids(tokenizer, template, variables):
    """The ids of a conversation and the assistant's mask, by apply_chat_template()."""
    encoded = tokenizer.apply_chat_template(variables["messages"], chat_template=template,
                                            **{k: v for k, v in variables.items() if k not in ("messages",) and not k.endswith("_token")},
                                            return_dict=True, return_assistant_tokens_mask=True)
    return {"ids": encoded["input_ids"], "mask": encoded["assistant_masks"]}


def write_cases(templates, out, rng):
    """Conversations with their texts, the spans of the assistant if the template marks them, and then also the ids
    and the mask by tokenizer.json in the folder."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(templates, "tokenizer.json"),
                                                     bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    with open(out, "w", encoding="utf-8") as file:
        for path in sorted(glob.glob(os.path.join(templates, "*.jinja"))):
            with open(path, encoding="utf-8") as template_file:
                template = template_file.read()
            maker = Conversations(rng)
            n = 0
            while n < 6:
                variables = maker.variables()
                variables.update(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
                text, spans = render_through_transformers(template, variables)
                if isinstance(text, Exception):
                    continue
                n += 1
                row = {key: variables[key] for key in ("messages", "tools", "documents") if variables[key] is not None}
                kwargs = {key: variables[key] for key in ("enable_thinking", "custom_tools", "date_string", "builtin_tools")
                          if key in variables}
                if kwargs:
                    row["chat_template_kwargs"] = kwargs
                case = {"template": os.path.basename(path), "generation_prompt": variables["add_generation_prompt"],
                        **row, "text": text}
                if re.search(r"{%-? generation", template):
                    case["spans"] = spans
                    case.update(masked_ids(tokenizer, template, variables))
                file.write(json.dumps(case, ensure_ascii=False) + "\n")


def normalized(variables):
    """What transformers does to messages before the template sees them; the library's reader of rows does it, too."""
    messages = chat_template_utils._normalize_chat_messages(variables["messages"])
    return {**variables, "messages": chat_template_utils._alias_reasoning_fields(messages)}


def render_through_transformers(template, variables):
    """Return the text or the exception, and the spans of the blocks {% generation %} in bytes."""
    given = dict(variables)
    try:
        messages = chat_template_utils._normalize_chat_messages(given.pop("messages"))
        texts, spans = chat_template_utils.render_jinja_template(
            [messages], tools=given.pop("tools"), documents=given.pop("documents"), chat_template=template,
            return_assistant_tokens_mask=True, **given)
    except Exception as error:  # noqa: BLE001
        return error, []
    text = texts[0]
    return text, [len(text[:end].encode()) for span in spans[0] for end in span]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*")
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=5)
    parser.add_argument("--templates")
    parser.add_argument("--write")
    options = parser.parse_args()
    if options.write:
        write_cases(options.templates, options.write, random.Random(options.seed))
        return 0
    what = options.what or ["expressions", "blocks", "case"] + (["families", "conversations"] if options.templates else [])
    ours = Ours(build_program(options.build))
    good = True
    for name in what:
        rng = random.Random(options.seed)
        if name in ("conversations", "families"):
            check = check_conversations if name == "conversations" else check_families
            for result in check(ours, options.templates, options.count or 200, rng):
                good = result.report(options.show) and good
            continue
        check = {"expressions": check_expressions, "blocks": check_blocks, "case": check_case}[name]
        good = check(ours, options.count or 20000, rng).report(options.show) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
