/* The part of Jinja2 that chat templates use. The expected texts are those of jinja2 3.1.6 in the
 * environment of transformers 5; tools/check_chat.py compares many more. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/text/jinja/jinja.h"
#include "tests/test.h"

/* Most cases need letters beyond ASCII. */
#ifdef FSDP_HAVE_UTF8PROC
#define NEEDS_UTF8PROC() (void)0
#else
#define NEEDS_UTF8PROC() SKIP("this build has no utf8proc")
#endif

static const char variables[] = "{\"s\": \"Hello, w\\u00f6rld\", \"w\": \"  padded \\t\", \"n\": "
                                "42, \"f\": 2.5, \"t\": true, \"no"
                                "ne_value\": null, \"l\": [3, 1, 2], \"names\": [\"b\", \"A\", "
                                "\"c\", \"a\"], \"d\": {\"a\": 1, \"b"
                                "\": [1, 2], \"items\": 5}, \"people\": [{\"name\": \"Zo\\u00e9\", "
                                "\"age\": 3}, {\"name\": \"abe"
                                "\", \"age\": 30}, {\"name\": \"Bob\", \"age\": 3, \"tags\": "
                                "[\"q\"]}], \"big\": 123456789012345"
                                "678901234567890, \"x\": \"given\"}";

typedef struct example {
    const char *template, *text;
} example;

static fsdp_status render_bytes(const char *source, size_t bytes, char **text)
{
    fsdp_jinja *jinja = NULL;
    fsdp_json *doc = NULL;
    jinja_machine machine;
    jinja_value given = {0};
    size_t length;
    fsdp_jinja_init(&machine);
    fsdp_status status = fsdp_json_parse("variables", 1, variables, sizeof variables - 1, &doc);
    if (status == FSDP_OK)
        status = fsdp_jinja_from_json(&machine, fsdp_json_root(doc), &given);
    if (status == FSDP_OK)
        status = fsdp_jinja_open(source, bytes, &jinja);
    if (status == FSDP_OK)
        status = fsdp_jinja_render(jinja, &machine, given, text, &length);
    fsdp_jinja_close(jinja);
    fsdp_json_destroy(doc);
    fsdp_jinja_fini(&machine);
    return status;
}

static fsdp_status render(const char *source, char **text)
{
    return render_bytes(source, strlen(source), text);
}

static void check_examples(fsdp_test *t, const example *examples, size_t n)
{
    NEEDS_UTF8PROC();
    for (size_t i = 0; i < n; i++) {
        char *text = NULL;
        if (render(examples[i].template, &text) != FSDP_OK)
            FAIL("%s: %s", examples[i].template, fsdp_last_error());
        if (strcmp(text, examples[i].text) != 0)
            FAIL("%s: '%s' instead of '%s'", examples[i].template, text, examples[i].text);
        fsdp_free(text);
    }
}

TEST(values_print_as_in_python)
{
    static const example examples[] = {
        {"{{ true }}{{ None }}{{ 1.0 }}{{ 1e16 }}{{ 0.1 + 0.2 }}{{ -0.0 }}",
         "TrueNone1.01e+160.30000000000000004-0.0"},
        {"{{ ['a', \"it's\", 'q\"', '\\n\\t\\\\', none, true, 1.5, {'k': (1,)}, ()] }}",
         "['a', \"it's\", 'q\"', '\\n\\t\\\\', None, True, 1.5, {'k': (1,)}, ()]"},
        {"{{ big }} {{ [big] }} {{ big|tojson }}",
         "123456789012345678901234567890 [123456789012345678901234567890] "
         "123456789012345678901234567890"},
        {"{{ missing }}|{{ [missing] }}|{{ d.nope }}|{{ ('\303\251', '\360\237\230\200', "
         "'\\u200b', '\\x7f') }}",
         "|[Undefined]||('\303\251', '\360\237\230\200', '\\u200b', '\\x7f')"},
        {"{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ range(3) }} {{ range(0, 10, 3) }}",
         "dict_items([('a', 1), ('b', [1, 2]), ('items', 5)]) dict_keys(['a', 'b', 'items']) "
         "dict_values([1, [1, 2], 5]) range(0, 3) range(0, 10, 3)"},
        {"{{ namespace(a=1, b='x') }}", "<Namespace {'a': 1, 'b': 'x'}>"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(operators_are_those_of_python)
{
    static const example examples[] = {
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ 2 "
         "** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
         "3 -4 -2 2 3.5 64 0.5 3.0 0.5"},
        {"{{ 'a' + 'b' }}{{ 'ab' * 3 }}{{ [1] + [2] }}{{ (1,) * 2 }}{{ 1 ~ 'x' ~ none ~ 2.0 }}",
         "abababab[1, 2](1, 1)1xNone2.0"},
        {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' in 'abc' }} {{ 4 not in l }} {{ 'a' in d }} {{ 1 "
         "== 1.0 == true }} {{ [1, 2] < [1, 3] }}",
         "True False True True True True True"},
        {"{{ 0 or 'x' }} {{ 1 and '' }}| {{ not 1 }} {{ not '' }} {{ 'a' if 0 }}| {{ 'a' if 1 else "
         "'b' if 0 else 'c' }}",
         "x | False True | a"},
        {"{{ -n + 2 * 3 - 4 / 2 }} {{ -2 ** 2 }} {{ not true == false }} {{ '0' + 1 ~ 2 }} {{ "
         "missing == missing2 }}",
         "-38.0 4 True 012 True"},
        {"{{ 1 if missing else 2 }} {{ missing or 'd' }} {{ 2 in missing }} {{ missing|list }}",
         "2 d False []"},
        {"{{ 0x1F + 0b11 + 0o17 + 1_000 }} {{ 1.5e3 }} {{ 'a' 'b' \"c\" }} {{ '\\x41\\u00e9\\n\\q' "
         "}}",
         "1049 1500.0 abc A\303\251\n\\q"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(parts_of_values_are_found_by_name_and_index)
{
    static const example examples[] = {
        {"{{ s[0] }}{{ s[-1] }}{{ s[8] }}{{ s[1:5] }}{{ s[::-1] }}{{ s[-5:-1:2] }}{{ s[99] }}|{{ "
         "s[99:] }}|",
         "Hd\303\266ellodlr\303\266w ,olleHwr||"},
        {"{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[5] }}|{{ people[0].name }}{{ "
         "people[0]['age'] }}{{ people.1.name }}",
         "32[1, 2][2, 1, 3]|Zo\303\2513abe"},
        {"{{ d.a }}{{ d['b'][1] }}{{ d['items'] }}{{ d.items is callable }}{{ d.get('zz') }}{{ "
         "d.get('zz', 7) }}{{ d['zz'] }}|",
         "125TrueNone7|"},
        {"{{ range(10)[2:8:3] }} {{ range(5)[-1] }} {{ (1, 2, 3)[:2] }}",
         "range(2, 8, 3) 4 (1, 2)"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(methods_of_texts_count_characters)
{
    static const example examples[] = {
        {"{{ w.strip() }}|{{ w.lstrip() }}|{{ w.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ "
         "'\303\251a\303\251'.strip('\303\251') }}",
         "padded|padded \t|  padded|a|a"},
        {"{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}{{ ' a b "
         "'.split(none, 1) }}{{ 'a-b-c'.rsplit('-', 1) }}{{ 'a\\r\\nb\\n'.splitlines() }}",
         "['a', 'b', '', 'c']['a', 'b']['a', 'b c']['a', 'b ']['a-b', 'c']['a', 'b']"},
        {"{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }}",
         "HELLO, W\303\226RLD hello, w\303\266rld Hello, W\303\266rld Hello, w\303\266rld"},
        {"{{ s.find('\303\266') }} {{ s.find('q') }} {{ s.rfind('l') }} {{ s.count('l') }} {{ "
         "s.index('w') }} {{ s.startswith('He') }} {{ s.endswith(('x', 'ld')) }}",
         "8 -1 10 3 7 True True"},
        {"{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'ab'.replace('', '-') }} {{ ', "
         "'.join(names) }} {{ 'a=b=c'.partition('=') }}",
         "HeLLo, w\303\266rLd HeLlo, w\303\266rld -a-b- b, A, c, a ('a', '=', 'b=c')"},
        {"{{ 'ab'.center(5, '*') }}|{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4, '.') }}|{{ "
         "'prefix-x'.removeprefix('prefix-') }}|{{ 'x.y'.removesuffix('.y') }}",
         "**ab*|ab  |..ab|x|x"},
        {"{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ 'a1'.isalpha() }}{{ ' '.isspace() }}{{ "
         "'AB'.isupper() }}{{ 'ab1'.islower() }}",
         "TrueTrueFalseTrueTrueTrue"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(filters_give_what_jinja_gives)
{
    static const example examples[] = {
        {"{{ w|trim }}|{{ s|upper }}|{{ s|length }}|{{ 'a b-c'|title }}|{{ 'ABC d'|capitalize "
         "}}|{{ l|count }}",
         "padded|HELLO, W\303\226RLD|12|A B-C|Abc d|3"},
        {"{{ l|join }} {{ l|join(', ') }} {{ people|map(attribute='name')|join('/') }} {{ "
         "people|join(',', attribute='age') }}",
         "312 3, 1, 2 Zo\303\251/abe/Bob 3,30,3"},
        {"{{ l|sort }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ "
         "l|sort(reverse=true) }} {{ people|sort(attribute='age,name')|map(attribute='name')|list "
         "}}",
         "[1, 2, 3] ['A', 'a', 'b', 'c'] ['A', 'a', 'b', 'c'] [3, 2, 1] ['Bob', 'Zo\303\251', "
         "'abe']"},
        {"{{ l|first }}{{ l|last }}{{ l|min }}{{ l|max }}{{ l|sum }}{{ l|reverse|list }}{{ "
         "'abc'|reverse }}{{ []|first }}|{{ ['a', 'A', 'b']|unique|list }}",
         "32136[2, 1, 3]cba|['a', 'b']"},
        {"{{ people|selectattr('tags')|list|length }} {{ people|selectattr('age', 'equalto', "
         "3)|map(attribute='name')|list }} {{ people|rejectattr('tags', 'defined')|list|length }}",
         "1 ['Zo\303\251', 'Bob'] 2"},
        {"{{ [1, 2, 3, 4]|select('odd')|list }} {{ [0, '', 'x']|select|list }} {{ [1, "
         "none]|reject('none')|list }} {{ names|map('upper')|list }} {{ people|map(attribute='zz', "
         "default='-')|list }}",
         "[1, 3] ['x'] [1] ['B', 'A', 'C', 'A'] ['-', '-', '-']"},
        {"{{ missing|default('x') }} {{ ''|default('x') }}| {{ ''|d('x', true) }} {{ "
         "none|default('x') }}",
         "x | x None"},
        {"{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int(9) }} {{ 'ff'|int(base=16) }} {{ '1.5'|float "
         "}} {{ true|int }} {{ 3.7|int }} {{ 2.5|round }} {{ 3.14159|round(2) }} {{ 2.1|round(0, "
         "'ceil') }} {{ -3|abs }} {{ 5|string + 'x' }}",
         "42 4 9 255 1.5 1 3 2.0 3.14 3.0 3 5x"},
        /* Prefixes and underscores are where Python allows them. */
        {"{{ '0x0x1F'|int(base=16) }} {{ '-0x1f'|int(base=16) }} {{ '+0X1F'|int(base=16) }} {{ "
         "'0x_1F'|int(base=16) }} {{ '0_x1F'|int(base=16) }} {{ '0x'|int(base=16) }} {{ "
         "'0b0b1'|int(base=2) }} {{ '0b101'|int(base=2) }} {{ '0_b1'|int(base=16) }} {{ "
         "'0o17'|int(base=8) }} {{ '0_o17'|int(base=8) }} {{ '1_0'|int(base=10) }} {{ "
         "'1__0'|int(base=10) }} {{ '1_'|int(base=10) }} {{ ' 7 '|int(base=10) }} {{ "
         "'+-7'|int(base=10) }} {{ '- 7'|int(base=10) }} {{ 'zZ'|int(base=36) }} {{ "
         "'0x1F'|int(base=36) }} {{ '1_e2'|int(base=10) }} {{ '1e_2'|int(base=10) }} {{ "
         "'in_f'|int(base=10) }} {{ '1_0.5'|int(base=10) }} {{ '1_.5'|int(base=10) }} {{ "
         "'-9223372036854775808'|int(base=10) }}",
         "0 -31 31 31 0 0 0 5 177 15 0 10 0 0 7 0 0 1295 42819 0 0 0 10 0 -9223372036854775808"},
        {"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent('> ', "
         "blank=true) }}",
         "a\n    b\n\n    c|  a\n  b|a\n> \n> b"},
        {"{{ d|dictsort }} {{ d|items|list }} {{ {'b': 1, 'A': 2}|dictsort }} {{ {'x': 2, 'y': "
         "1}|dictsort(by='value') }}",
         "[('a', 1), ('b', [1, 2]), ('items', 5)] [('a', 1), ('b', [1, 2]), ('items', 5)] [('A', "
         "2), ('b', 1)] [('y', 1), ('x', 2)]"},
        {"{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 0)|list }} {{ [1, 2, 3, 4, "
         "5]|slice(2)|list }}",
         "[[1, 2], [3, 4], [5]] [[1, 2], [3, 0]] [[1, 2, 3], [4, 5]]"},
        {"{{ [1, 2, 3]|batch(0)|list }} {{ [1, 2]|batch(-1)|list }} {{ []|batch(0)|list }}",
         "[[], [1, 2, 3]] [[1, 2]] []"},
        /* The default replaces each undefined part of the path, not only the last one. */
        {"{{ [{'a': {'b': 1}}, {'a': {}}, {}, {'a': 'x'}]|map(attribute='a.b', default='d')|list "
         "}}",
         "[1, 'd', 'd', 'd']"},
        {"{{ [{'a': {}}, {}]|map(attribute='a.b', default={'b': 5})|list }}", "[{'b': 5}, 5]"},
        {"{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'a "
         "<b>'|e }} {{ 'x'|safe }} {{ 'a b/\303\251'|urlencode }} {{ 'one two'|wordcount }}",
         "foo... foo ba... a &lt;b&gt; x a%20b/%C3%A9 2"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(tojson_is_json_dumps)
{
    static const example examples[] = {
        {"{{ {'a': [1, 2.0, none, true], '\303\251': '\"q\\\\\\n\\x01</'}|tojson }}",
         "{\"a\": [1, 2.0, null, true], \"\303\251\": \"\\\"q\\\\\\n\\u0001</\"}"},
        {"{{ {'b': 1, 'a': {'c': [], 'd': {}}}|tojson(indent=2) }}",
         "{\n  \"b\": 1,\n  \"a\": {\n    \"c\": [],\n    \"d\": {}\n  }\n}"},
        {"{{ {'b': '\303\251\360\237\230\200', 'a': 1}|tojson(ensure_ascii=true, sort_keys=true, "
         "separators=(',', ':')) }}",
         "{\"a\":1,\"b\":\"\\u00e9\\ud83d\\ude00\"}"},
        {"{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ ('x', 1)|tojson }} {{ 1e100|tojson }}",
         "{\"1\": 4, \"null\": 3, \"1.5\": 5} [\"x\", 1] 1e+100"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(tests_give_what_jinja_gives)
{
    static const example examples[] = {
        {"{{ x is defined }}{{ missing is defined }}{{ missing is undefined }}{{ none_value is "
         "none }}{{ x is string }}{{ d is mapping }}{{ l is sequence }}{{ l is iterable }}{{ n is "
         "number }}{{ t is number }}{{ n is integer }}{{ t is integer }}{{ f is float }}{{ t is "
         "boolean }}{{ t is true }}{{ t is false }}",
         "TrueFalseTrueTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueTrueTrueFalse"},
        {"{{ 4 is even }}{{ 4 is odd }}{{ 9 is divisibleby 3 }}{{ n is equalto 42 }}{{ n is eq(42) "
         "}}{{ 3 is gt 2 }}{{ 3 is in l }}{{ 'a' is lower }}{{ 'A' is upper }}{{ none is sameas "
         "none }}{{ x is not none }}{{ d.items is callable }}",
         "TrueFalseTrueTrueTrueTrueTrueTrueTrueTrueTrueTrue"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(whitespace_is_controlled_as_jinja_controls_it)
{
    static const example examples[] = {
        {"a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"},
        {"  {% if true %}x{% endif %}\n y", "x y"},
        {"a  {%- if true -%}  b  {%- endif -%}  c", "abc"},
        {"a\n  {%+ if true %}b{% endif %}\n", "a\n  b"},
        {"a {%- set y = 1 +%}\n b", "a\n b"},
        {"{{ 1 -}}  \n  {{- 2 }}  {{ 3 }}\n", "12  3"},
        {"  {# comment #}\nx {#- comment -#} y\n\n", "xy\n"},
        {"a\r\nb\rc\n\n", "a\nb\nc\n"},
        {"{% raw %} {{ x }} {% if %} {% endraw %}\n!{%- raw -%} a {%- endraw -%} b",
         " {{ x }} {% if %} !ab"},
        {"\n\n  {% for i in [1, 2] %}\n  {{ i }}\n  {% endfor %}\n", "\n\n  1\n  2\n"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(assignments_end_with_their_scope)
{
    static const example examples[] = {
        {"{% set y = 1 %}{% for i in l %}{% set y = i %}{{ y }}{% endfor %}{{ y }}", "3121"},
        {"{% set ns = namespace(y=1) %}{% for i in l %}{% set ns.y = ns.y + i %}{% endfor %}{{ "
         "ns.y }}",
         "7"},
        {"{% if true %}{% set y = 5 %}{% endif %}{{ y }}{% if false %}{% set x = 1 %}{% endif %}{{ "
         "x }}",
         "5given"},
        {"{{ x }}{% set x = x ~ '!' %}{{ x }}{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% "
         "endfor %}{{ x }}",
         "givengiven!given!2given!"},
        {"{% for i in [1, 2] %}{% set x = 9 %}{% endfor %}{{ x }}{% for i in [1] %}{% set q = 1 "
         "%}{% endfor %}{{ q is defined }}",
         "givenFalse"},
        {"{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}{% set y %}text {{ a }}{% endset "
         "%}{{ y }}{% set z | upper %}text{% endset %}{{ z }}",
         "123text 1TEXT"},
        {"{% with a = 1, b = x %}{{ a }}{{ b }}{% endwith %}{{ a }}|{% filter upper %}abc{{ x }}{% "
         "endfilter %}",
         "1given|ABCGIVEN"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(loops_know_where_they_are)
{
    static const example examples[] = {
        {"{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 "
         "}}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
         "1032TrueFalse3 2121FalseFalse3 3210FalseTrue3 "},
        {"{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') "
         "}}{{ loop.changed(i > 1) }} {% endfor %}",
         "<3>1 aTrue 3<1>2 bTrue 1<2> aTrue "},
        {"{% for k, v in d.items() if v is not number %}{{ k }}{{ v }}{{ loop.length }}{% endfor "
         "%}",
         "b[1, 2]1"},
        {"{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1] %}{{ i }}{% else %}empty{% "
         "endfor %}",
         "empty1"},
        {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break "
         "%}{% endif %}{{ i }}{% endfor %}",
         "013"},
        {"{% for i in [1] %}{% break %}{% else %}still{% endfor %}", "still"},
        {"{% for a in l %}{% for b in 'xy' %}{{ loop.index }}{{ a }}{{ b }}{% endfor %}{{ "
         "loop.index }} {% endfor %}",
         "13x23y1 11x21y2 12x22y3 "},
        {"{% for i in people|selectattr('age', 'gt', 2) %}{{ loop.length }}{{ i.name }}{{ "
         "loop.last }}{% endfor %}",
         "3Zo\303\251False3abeFalse3BobTrue"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

TEST(macros_see_the_variables_around_them)
{
    static const example examples[] = {
        {"{% macro m(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}{{ x }}]{% endmacro %}{{ m(1) }}{{ "
         "m(1, c=3) }}{{ m(b=2, a=1) }}{{ m() }}",
         "[1B1given][1B3given][121given][Bgiven]"},
        {"{% macro m() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}{% set y = 2 %}{{ m() }}",
         "12"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}{% macro f(n) "
         "%}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
         "(1, 2){'k': 3}3210"},
        {"{% macro wrap(t) %}<{{ t }}>{{ caller(1) }}</{{ t }}>{% endmacro %}{% call(v) wrap('b') "
         "%}in {{ v }}{{ x }}{% endcall %}",
         "<b>in 1given</b>"},
        {"{% set args = [1, 2] %}{% set kw = {'c': 3} %}{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c "
         "}}{% endmacro %}{{ m(*args, **kw) }}",
         "123"},
        {"{% for i in l %}{% macro m() %}{{ i }}{{ loop is defined }}{% endmacro %}{{ m() }}{% "
         "endfor %}",
         "3True1True2True"},
    };
    check_examples(t, examples, FSDP_LENGTH(examples));
}

/* ---- errors ---- */

typedef struct failure {
    const char *template;
    fsdp_status status;
    const char *message; /* a part of it */
} failure;

static void check_failures(fsdp_test *t, const failure *failures, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *text = NULL;
        const fsdp_status status = render(failures[i].template, &text);
        if (status != failures[i].status || !strstr(fsdp_last_error(), failures[i].message))
            FAIL("%s: %s: %s", failures[i].template, fsdp_status_name(status),
                 status == FSDP_OK ? "no error" : fsdp_last_error());
    }
}

TEST(syntax_errors_name_the_line)
{
    static const failure failures[] = {
        {"a\n\n{{ x ", FSDP_ERR_FORMAT, "line 3: expected '}}', found the end"},
        {"{% if x %}\n", FSDP_ERR_FORMAT, "without its {% endif %}"},
        {"\n{% endif %}", FSDP_ERR_FORMAT, "line 2: unknown or misplaced tag 'endif'"},
        {"{% foo %}", FSDP_ERR_FORMAT, "line 1: unknown or misplaced tag 'foo'"},
        {"{{ (1, 2] }}", FSDP_ERR_FORMAT, "line 1: unexpected ']'"},
        {"{{ 1 + }}", FSDP_ERR_FORMAT, "expected an expression, found '}}'"},
        {"\n\n{{ x|nope }}", FSDP_ERR_FORMAT, "line 3: no filter named 'nope'"},
        {"{{ x is nope }}", FSDP_ERR_FORMAT, "line 1: no test named 'nope'"},
        {"{{ 'abc }}", FSDP_ERR_FORMAT, "has no end"},
        {"{{ x ? 1 }}", FSDP_ERR_FORMAT, "line 1: unexpected character '?'"},
        {"{# abc", FSDP_ERR_FORMAT, "missing end of comment"},
        {"{% raw %} x", FSDP_ERR_FORMAT, "missing end of raw"},
        {"{% break %}", FSDP_ERR_FORMAT, "outside of a for block"},
        {"{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", FSDP_ERR_FORMAT,
         "outside of a for block"},
        {"{% for i in l %}{{ loop }}{% set loop = 1 %}{% endfor %}", FSDP_ERR_FORMAT,
         "cannot assign to 'loop'"},
        {"{% set true = 1 %}", FSDP_ERR_FORMAT, "a name to assign to, found 'true'"},
        {"{% macro m(a=1, b) %}{% endmacro %}", FSDP_ERR_FORMAT, "as the parameter before has one"},
        {"{% macro m(a, a) %}{% endmacro %}", FSDP_ERR_FORMAT, "a parameter is repeated"},
        {"{{ m(a=1, 2) }}", FSDP_ERR_FORMAT, "in a wrong order"},
        {"{{ m(a=1, a=2) }}", FSDP_ERR_FORMAT, "'a' is repeated"},
        {"{{ '\\xzz' }}", FSDP_ERR_FORMAT, "an escape"},
    };
    check_failures(t, failures, FSDP_LENGTH(failures));
}

TEST(what_is_not_supported_is_refused_by_name_and_line)
{
    static const failure failures[] = {
        {"\n\n{{ d|xmlattr }}", FSDP_ERR_UNSUPPORTED, "line 3: filter 'xmlattr' is not supported"},
        {"{% if false %}{{ 1|random }}{% endif %}", FSDP_ERR_UNSUPPORTED, "filter 'random'"},
        {"\n{% include 'x' %}", FSDP_ERR_UNSUPPORTED, "line 2: {% include %} is not supported"},
        {"{% for i in l recursive %}{% endfor %}", FSDP_ERR_UNSUPPORTED, "'recursive' loops"},
        {"{{ 'x' is filter }}", FSDP_ERR_UNSUPPORTED, "test 'filter' is not supported"},
        {"\n{{ cycler(1) }}", FSDP_ERR_UNSUPPORTED,
         "line 2: the function 'cycler' is not supported"},
        {"\n{{ self.title() }}", FSDP_ERR_UNSUPPORTED, "line 2: "},
        {"{{ self }}", FSDP_ERR_UNSUPPORTED, "line 1: printing a function"},
        {"{{ s.encode() }}", FSDP_ERR_UNSUPPORTED, "the method 'encode' of str is not supported"},
        {"{{ '%s' % s }}", FSDP_ERR_UNSUPPORTED, "formatting a text with % is not supported"},
        {"{{ 2 ** 64 }}", FSDP_ERR_UNSUPPORTED, "does not fit in 64 bits"},
        {"{{ 99999999999999999999 }}", FSDP_ERR_UNSUPPORTED, "line 1: the integer 99999999999"},
        {"{{ l|map('upper') }}", FSDP_ERR_UNSUPPORTED, "printing a generator"},
        {"{{ ('<'|e) + '<' }}", FSDP_ERR_UNSUPPORTED, "'safe' or 'escape'"},
    };
    check_failures(t, failures, FSDP_LENGTH(failures));
}

TEST(errors_of_values_name_the_line)
{
    static const failure failures[] = {
        {"\n{{ missing.x }}", FSDP_ERR_INVALID, "line 2: 'missing' is undefined"},
        {"{{ d.nope.x }}", FSDP_ERR_INVALID, "'dict object' has no attribute 'nope'"},
        {"{{ missing + 1 }}", FSDP_ERR_INVALID, "'missing' is undefined"},
        {"{{ 'a' + 1 }}", FSDP_ERR_INVALID,
         "line 1: unsupported operand types for +: 'str' and 'int'"},
        {"{{ 1 / 0 }}", FSDP_ERR_INVALID, "division by zero"},
        {"{{ 1 < 'a' }}", FSDP_ERR_INVALID, "not supported between 'int' and 'str'"},
        {"{{ n() }}", FSDP_ERR_INVALID, "'int' object is not callable"},
        {"{% for i in n %}{% endfor %}", FSDP_ERR_INVALID, "'int' object is not iterable"},
        {"{% set a, b = l %}", FSDP_ERR_INVALID, "too many values to unpack: expected 2, got 3"},
        {"{% set d.x = 1 %}", FSDP_ERR_INVALID, "'d' is not a namespace"},
        {"{{ l.append(1) }}", FSDP_ERR_INVALID, "the sandbox of chat templates forbids"},
        {"{{ s.__class__.x }}", FSDP_ERR_INVALID, "the sandbox of chat templates forbids"},
        {"{{ {l: 1} }}", FSDP_ERR_INVALID, "unhashable type: 'list'"},
        {"{{ l|join(1, 2, 3) }}", FSDP_ERR_INVALID, "join takes at most 2 arguments"},
        {"{{ s.isupper(1) }}", FSDP_ERR_INVALID, "isupper takes"},
        {"{{ strftime_now('%Y\\x00%m') }}", FSDP_ERR_UNSUPPORTED, "without %f and NUL"},
        {"{{ s.strip(1) }}", FSDP_ERR_INVALID,
         "strip: expected a text, found an argument of type int"},
        {"{{ missing|tojson }}", FSDP_ERR_INVALID, "tojson: 'missing' is undefined"},
        {"{{ raise_exception('not\nthis') }}", FSDP_ERR_INVALID,
         "line 1: the template refuses the conversation: not\nthis"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", FSDP_ERR_INVALID, "the macro 'm' got more"},
        {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", FSDP_ERR_INVALID,
         "takes no keyword argument b"},
        {"{{ l|sort(attribute='x.y') }}", FSDP_ERR_INVALID, "has no attribute 'x'"},
        {"{{ range(9223372036854775806, 9223372036854775807, 5)[:] }}", FSDP_ERR_INVALID,
         "a bound or the step of a slice of a range is too large"},
        {"{{ range(0, 9223372036854775807, 4611686018427387904)[::3] }}", FSDP_ERR_INVALID,
         "a bound or the step of a slice of a range is too large"},
    };
    check_failures(t, failures, FSDP_LENGTH(failures));
}

/* Names may come from a conversation. A message shows 200 bytes of them, without a part of a
 * character: 100 letters of two bytes, or one of one byte and 99 of two. */
TEST(errors_show_the_beginning_of_a_long_name)
{
    static const failure failures[] = {
        {"{{ range(**{'\u00e9' * 1000: 1}) }}", FSDP_ERR_INVALID, "range has no argument '"},
        {"{{ namespace(**{'_' + '\u00e9' * 1000: 1}) }}", FSDP_ERR_INVALID, "found '"},
        {"{% macro m() %}{% endmacro %}{{ m(**{'\u00e9' * 1000: 1}) }}", FSDP_ERR_INVALID,
         "takes no keyword argument "},
        {"{{ l|map('\u00e9' * 1000)|list }}", FSDP_ERR_INVALID, "there is no filter '"},
        {"{{ l|select('\u00e9' * 1000)|list }}", FSDP_ERR_INVALID, "there is no test '"},
        {"{{ d['\u00e9' * 1000].x }}", FSDP_ERR_INVALID, "has no attribute '"},
    };
    char letters[201];
    for (size_t i = 0; i < 200; i += 2)
        memcpy(letters + i, "\u00e9", 2);
    check_failures(t, failures, FSDP_LENGTH(failures));
    for (size_t i = 0; i < FSDP_LENGTH(failures); i++) {
        char *text = NULL;
        ASSERT_INT(render(failures[i].template, &text), FSDP_ERR_INVALID);
        const char *name = strstr(fsdp_last_error(), failures[i].message);
        ASSERT(name != NULL);
        name += strlen(failures[i].message);
        const size_t begin = *name == '_', bytes = 200 - 2 * begin;
        if (strncmp(name + begin, letters, bytes) != 0 || (unsigned char)name[begin + bytes] >= 128)
            FAIL("%s: %s", failures[i].template, fsdp_last_error());
    }
}

/* ---- limits ---- */

/* No template runs without end or takes memory without limit. */
TEST(templates_that_never_end_are_stopped)
{
    static const failure failures[] = {
        {"{% for i in range(10**9) %}{% endfor %}", FSDP_ERR_INVALID, "range: 1000000000 items"},
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         FSDP_ERR_INVALID, "steps"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", FSDP_ERR_INVALID, "nested more than"},
        {"{{ 'x' * 10**9 }}", FSDP_ERR_INVALID, "a text of more than 64 MiB"},
        {"{{ [1] * 10**12 }}", FSDP_ERR_INVALID, ""},
        {"{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}"
         "{% endfor %}",
         FSDP_ERR_INVALID, "a text of more than 64 MiB"},
        {"{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", FSDP_ERR_INVALID, "MiB"},
        {"{% set ns = namespace(a=0) %}{% set ns.a = ns %}{{ ns }}", FSDP_ERR_INVALID,
         "nested more than"},
        {"{{ 'a'.center(10**9) }}", FSDP_ERR_INVALID, "MiB"},
        {"{{ ('a' * 9)|replace('', 'b' * 9999999) }}", FSDP_ERR_INVALID, ""},
    };
    for (size_t i = 0; i < FSDP_LENGTH(failures); i++) {
        if (UNDER_SANITIZER && i == 1)
            continue; /* many seconds */
        check_failures(t, &failures[i], 1);
        if (t->failed)
            return;
    }
}

/* Brackets, blocks and chains that are nested too deeply are refused before they run. */
TEST(deep_templates_are_refused)
{
    static const char *const pieces[][3] = {
        {"{{ ", "(", ""},        {"{{ ", "[", ""},
        {"{{ ", "-", "1 }}"},    {"{{ ", "not ", "1 }}"},
        {"{{ x", ".a", " }}"},   {"{{ x", "|upper", " }}"},
        {"{{ 1", " + 1", " }}"}, {"", "{% if x %}", ""},
        {"{{ x", "[x", ""},      {"{{ 1", " if 1 else 1", " }}"},
        {"{{ {", "1:{", ""},     {"{{ 1", " and 1", " }}"},
    };
    for (size_t i = 0; i < FSDP_LENGTH(pieces); i++) {
        const size_t times = 20000, bytes = strlen(pieces[i][1]);
        char *source = fsdp_calloc(times * bytes + 64, 1), *text = NULL;
        char *end = stpcpy(source, pieces[i][0]);
        for (size_t k = 0; k < times; k++)
            end = stpcpy(end, pieces[i][1]);
        strcpy(end, pieces[i][2]);
        const fsdp_status status = render(source, &text);
        fsdp_free(source);
        if (status != FSDP_ERR_UNSUPPORTED && status != FSDP_ERR_FORMAT)
            FAIL("%s: %s", pieces[i][1], fsdp_status_name(status));
    }
}

/* Appending to a text in a loop takes linear time: a megabyte in pieces of ten bytes. */
TEST(building_a_text_by_pieces_is_not_quadratic)
{
    char *text = NULL;
    ASSERT_OK(render("{% set ns = namespace(t='') %}{% for i in range(99999) %}"
                     "{% set ns.t = ns.t + '0123456789' %}{% endfor %}{{ ns.t|length }}",
                     &text));
    ASSERT_STR(text, "999990");
    fsdp_free(text);
}

/* Two texts that share a beginning do not overwrite each other. */
TEST(appending_to_one_text_twice_gives_two_texts)
{
    char *text = NULL;
    ASSERT_OK(render("{% set a = 'x' * 200 + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}"
                     "{{ a[-2:] }} {{ b[-2:] }} {{ c[-2:] }}",
                     &text));
    ASSERT_STR(text, "xy y1 y2");
    fsdp_free(text);
}

TEST(a_template_that_is_no_utf8_is_refused)
{
    char *text = NULL;
    ASSERT_ERROR(render("abc\xFF", &text), FSDP_ERR_FORMAT, "not UTF-8 (byte 3)");
    ASSERT_OK(render_bytes("a\0b", 3, &text));
    fsdp_free(text);
}

/* The date is that of this moment. */
TEST(strftime_now_formats_the_date)
{
    char *text = NULL;
    ASSERT_OK(render("{{ strftime_now('%Y-%m-%d|%%') }}", &text));
    ASSERT_INT(strlen(text), 12);
    ASSERT(text[4] == '-' && strcmp(text + 10, "|%") == 0);
    fsdp_free(text);
    ASSERT_OK(render("<{{ strftime_now('') }}>", &text));
    ASSERT_STR(text, "<>");
    fsdp_free(text);
}

/* Each allocation fails once. */
TEST(no_memory_leaks_when_an_allocation_fails)
{
    static const char source[] =
        "{% macro m(a, b=[1, 2]) %}{{ a }}{{ b|map('string')|join(',') }}{% endmacro %}"
        "{% set ns = namespace(x='') %}{% for p in people if p.age %}{% set ns.x = ns.x ~ p.name %}"
        "{{ loop.index }}{{ m(p|tojson(indent=2)) }}{% endfor %}{% filter upper %}{{ ns.x }}"
        "{% endfilter %}{% set t %}{{ d.items()|list }}{% endset %}{{ t.split(',')|sort }}"
        "{% generation %}{{ names|sort }}{% endgeneration %}";
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; status == FSDP_ERR_NOMEM; n++) {
        char *text = NULL;
        fsdp_alloc_fail_at(n);
        status = render(source, &text);
        fsdp_alloc_fail_at(0);
        if (status == FSDP_ERR_NOMEM)
            ASSERT(text == NULL);
        else
            ASSERT_OK(status);
        fsdp_free(text);
        ASSERT(n < 100000);
    }
}
