/* The tables of all filters and tests, the implementations of the tests, and the filters that apply
 * another filter or test by its name: map, select, reject, selectattr and rejectattr. */
#include "src/text/jinja/filters.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/text/jinja/arithmetic.h"
#include "src/text/jinja/attribute.h"
#include "src/text/jinja/chars.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"
#include "src/text/jinja/print.h"

/* ---- tests of the kind of a value ------------------------------------------------------------ */

#define KIND_TEST(name, condition)                                                                 \
    static fsdp_status test_##name(jinja_machine *machine, jinja_value value,                      \
                                   const jinja_args *args, bool *out)                              \
    {                                                                                              \
        (void)machine;                                                                             \
        FSDP_TRY(fsdp_jinja_bind("the test " #name, "", 0, args, NULL));                           \
        *out = (condition);                                                                        \
        return FSDP_OK;                                                                            \
    }

KIND_TEST(defined, !jinja_is_absent(value))
KIND_TEST(undefined, jinja_is_absent(value))
KIND_TEST(none, value.kind == JINJA_NONE)
KIND_TEST(boolean, value.kind == JINJA_BOOL)
KIND_TEST(true, value.kind == JINJA_BOOL && value.as.boolean)
KIND_TEST(false, value.kind == JINJA_BOOL && !value.as.boolean)
KIND_TEST(integer, value.kind == JINJA_INT || value.kind == JINJA_BIG_INT)
KIND_TEST(float, value.kind == JINJA_FLOAT)
KIND_TEST(number, value.kind >= JINJA_BOOL && value.kind <= JINJA_FLOAT)
KIND_TEST(string, value.kind == JINJA_STRING)
KIND_TEST(mapping, value.kind == JINJA_DICT)
KIND_TEST(iterable, fsdp_jinja_is_iterable(value))
KIND_TEST(callable,
          value.kind >= JINJA_MACRO || value.kind == JINJA_UNDEFINED || value.kind == JINJA_LOOP)
KIND_TEST(escaped, value.kind == JINJA_STRING && value.safe)
/* The test `sequence` is true for values that have a length and __getitem__ in Python. Generators
 * and views of dicts have no __getitem__. */
KIND_TEST(sequence, (value.kind >= JINJA_STRING && value.kind <= JINJA_RANGE) ||
                        value.kind == JINJA_UNDEFINED)

/* ---- tests with an argument ------------------------------------------------------------------ */

static fsdp_status test_equal(jinja_machine *machine, jinja_value value, const jinja_args *args,
                              bool *out)
{
    jinja_value other;
    FSDP_TRY(fsdp_jinja_bind("the test eq", "other", 1, args, &other));
    return fsdp_jinja_equal(machine, value, other, out);
}

static fsdp_status test_not_equal(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                  bool *out)
{
    FSDP_TRY(test_equal(machine, value, args, out));
    *out = !*out;
    return FSDP_OK;
}

static fsdp_status order_of(jinja_machine *machine, jinja_value value, const jinja_args *args,
                            int *order)
{
    jinja_value other;
    FSDP_TRY(fsdp_jinja_bind("the test", "other", 1, args, &other));
    return fsdp_jinja_order(machine, value, other, order);
}

#define ORDER_TEST(name, condition)                                                                \
    static fsdp_status test_##name(jinja_machine *machine, jinja_value value,                      \
                                   const jinja_args *args, bool *out)                              \
    {                                                                                              \
        int order;                                                                                 \
        FSDP_TRY(order_of(machine, value, args, &order));                                          \
        *out = order != 2 && (condition);                                                          \
        return FSDP_OK;                                                                            \
    }

ORDER_TEST(gt, order > 0)
ORDER_TEST(ge, order >= 0)
ORDER_TEST(lt, order < 0)
ORDER_TEST(le, order <= 0)

static fsdp_status test_in(jinja_machine *machine, jinja_value value, const jinja_args *args,
                           bool *out)
{
    jinja_value container;
    FSDP_TRY(fsdp_jinja_bind("the test in", "seq", 1, args, &container));
    return fsdp_jinja_contains(machine, container, value, out);
}

/* The test `sameas`, which is Python's `is`. It is supported for None, True and False, and for
 * values of different types, which are never the same object. For other values, this library does
 * not know whether Python would use the same object. */
static fsdp_status test_sameas(jinja_machine *machine, jinja_value value, const jinja_args *args,
                               bool *out)
{
    jinja_value other;
    (void)machine;
    FSDP_TRY(fsdp_jinja_bind("the test sameas", "other", 1, args, &other));
    *out = false;
    if (value.kind != other.kind)
        return FSDP_OK;
    if (value.kind == JINJA_NONE || value.kind == JINJA_BOOL) {
        *out = value.kind == JINJA_NONE || value.as.boolean == other.as.boolean;
        return FSDP_OK;
    }
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "the test sameas is supported for true, false and none only");
}

static fsdp_status remainder_of(jinja_machine *machine, jinja_value value, jinja_value divisor,
                                int64_t wanted, bool *out)
{
    jinja_value rest;
    FSDP_TRY(fsdp_jinja_operate(machine, JINJA_MODULO, value, divisor, &rest));
    return fsdp_jinja_equal(machine, rest, jinja_int(wanted), out);
}

static fsdp_status test_odd(jinja_machine *machine, jinja_value value, const jinja_args *args,
                            bool *out)
{
    FSDP_TRY(fsdp_jinja_bind("the test odd", "", 0, args, NULL));
    return remainder_of(machine, value, jinja_int(2), 1, out);
}

static fsdp_status test_even(jinja_machine *machine, jinja_value value, const jinja_args *args,
                             bool *out)
{
    FSDP_TRY(fsdp_jinja_bind("the test even", "", 0, args, NULL));
    return remainder_of(machine, value, jinja_int(2), 0, out);
}

static fsdp_status test_divisibleby(jinja_machine *machine, jinja_value value,
                                    const jinja_args *args, bool *out)
{
    jinja_value divisor;
    FSDP_TRY(fsdp_jinja_bind("the test divisibleby", "num", 1, args, &divisor));
    return remainder_of(machine, value, divisor, 0, out);
}

/* Set *out to true if the text has at least one cased letter, and all of its cased letters are in
 * the class `wanted`. */
static fsdp_status is_case(jinja_machine *machine, jinja_value value, const jinja_args *args,
                           jinja_char_class wanted, bool *out)
{
    bool any = false, other = false;
    FSDP_TRY(fsdp_jinja_bind("the test of case", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_str(machine, value, &value));
    const jinja_string *text = value.as.string;
    FSDP_TRY(fsdp_jinja_charge(machine, text->bytes / 4));
    for (size_t at = 0; !other && at < text->bytes;) {
        bool upper, lower, title;
        const uint32_t c = fsdp_jinja_next_char(text->data, text->bytes, &at);
        FSDP_TRY(fsdp_jinja_char_is(c, JINJA_CHAR_UPPER, &upper));
        FSDP_TRY(fsdp_jinja_char_is(c, JINJA_CHAR_LOWER, &lower));
        FSDP_TRY(fsdp_jinja_char_is(c, JINJA_CHAR_TITLE, &title));
        any = any || (wanted == JINJA_CHAR_UPPER ? upper : lower);
        other = title || (wanted == JINJA_CHAR_UPPER ? lower : upper);
    }
    *out = any && !other;
    return FSDP_OK;
}

static fsdp_status test_upper(jinja_machine *machine, jinja_value value, const jinja_args *args,
                              bool *out)
{
    return is_case(machine, value, args, JINJA_CHAR_UPPER, out);
}

static fsdp_status test_lower(jinja_machine *machine, jinja_value value, const jinja_args *args,
                              bool *out)
{
    return is_case(machine, value, args, JINJA_CHAR_LOWER, out);
}

const jinja_test *fsdp_jinja_find_test(const jinja_string *name)
{
    static const jinja_test tests[] = {
        {"defined", test_defined},
        {"undefined", test_undefined},
        {"none", test_none},
        {"string", test_string},
        {"mapping", test_mapping},
        {"iterable", test_iterable},
        {"sequence", test_sequence},
        {"number", test_number},
        {"integer", test_integer},
        {"float", test_float},
        {"boolean", test_boolean},
        {"true", test_true},
        {"false", test_false},
        {"callable", test_callable},
        {"eq", test_equal},
        {"equalto", test_equal},
        {"==", test_equal},
        {"ne", test_not_equal},
        {"!=", test_not_equal},
        {"gt", test_gt},
        {"greaterthan", test_gt},
        {">", test_gt},
        {"ge", test_ge},
        {">=", test_ge},
        {"lt", test_lt},
        {"lessthan", test_lt},
        {"<", test_lt},
        {"le", test_le},
        {"<=", test_le},
        {"in", test_in},
        {"odd", test_odd},
        {"even", test_even},
        {"upper", test_upper},
        {"lower", test_lower},
        {"sameas", test_sameas},
        {"divisibleby", test_divisibleby},
        {"escaped", test_escaped},
        {"filter", NULL},
        {"test", NULL},
    };
    for (size_t i = 0; i < FSDP_LENGTH(tests); i++)
        if (fsdp_jinja_string_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}

fsdp_status fsdp_jinja_call_test(jinja_machine *machine, const jinja_test *test, jinja_value value,
                                 const jinja_args *args, bool *out)
{
    if (!test->call)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "the test '%s' is not supported", test->name);
    return test->call(machine, value, args, out);
}

/* ---- map and select -------------------------------------------------------------------------- */

/* What the filters map and select (and reject, selectattr, rejectattr) do with each item. */
typedef struct treatment {
    /* map: the filter to apply; NULL: map returns an attribute of the item */
    const jinja_filter *filter;
    /* select: the test to apply; NULL: the truth of the item is the result */
    const jinja_test *test;
    /* path of the attribute to use; JINJA_MISSING: the item itself is used */
    jinja_value attribute;
    jinja_value fallback; /* the argument `default` of map, or JINJA_MISSING */
    /* select: an item is kept if the result of the test is equal to this; false for reject */
    bool keep;
    jinja_args args;
} treatment;

static fsdp_status next_mapped(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    const treatment *t = it->state;
    FSDP_TRY(fsdp_jinja_next(machine, it->inner, item));
    if (item->kind == JINJA_MISSING)
        return FSDP_OK;
    FSDP_TRY(fsdp_jinja_descend(machine));
    const fsdp_status status =
        t->filter ? fsdp_jinja_call_filter(machine, t->filter, *item, &t->args, item)
                  : fsdp_jinja_get_path_or(machine, *item, t->attribute, t->fallback, item);
    machine->depth--;
    return status;
}

static fsdp_status is_kept(jinja_machine *machine, const treatment *t, jinja_value item, bool *kept)
{
    FSDP_TRY(fsdp_jinja_get_path(machine, item, t->attribute, &item));
    if (t->test)
        FSDP_TRY(fsdp_jinja_call_test(machine, t->test, item, &t->args, kept));
    else
        *kept = fsdp_jinja_truth(item);
    *kept = *kept == t->keep;
    return FSDP_OK;
}

static fsdp_status next_selected(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    bool kept = false;
    while (!kept) {
        FSDP_TRY(fsdp_jinja_next(machine, it->inner, item));
        if (item->kind == JINJA_MISSING)
            return FSDP_OK;
        FSDP_TRY(fsdp_jinja_descend(machine));
        const fsdp_status status = is_kept(machine, it->state, *item, &kept);
        machine->depth--;
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Make the iterator that map or select returns. If bool(value) is false in Python, as for None, the
 * iterator has no items. */
static fsdp_status treat(jinja_machine *machine, jinja_value value, jinja_next_fn *next,
                         const treatment *t, jinja_value *out)
{
    jinja_iterator *it;
    treatment *copy;
    if (!fsdp_jinja_truth(value))
        FSDP_TRY(fsdp_jinja_list(machine, 0, &value));
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *copy, &copy));
    *copy = *t;
    FSDP_TRY(fsdp_jinja_iterator(machine, value, next, &it));
    it->state = copy;
    FSDP_TRY(fsdp_jinja_iterate_later(machine, value, &it->inner));
    *out = jinja_of_iterator(it);
    return FSDP_OK;
}

static fsdp_status name_argument(const char *what, const jinja_args *args, size_t index,
                                 const jinja_string **name)
{
    if (args->values[index].kind != JINJA_STRING)
        return fsdp_error(FSDP_ERR_INVALID, "%s: expected the name of a filter or test, found %s",
                          what, fsdp_jinja_type_name(args->values[index]));
    *name = args->values[index].as.string;
    return FSDP_OK;
}

static jinja_args rest_of(const jinja_args *args, size_t from)
{
    jinja_args rest = *args;
    rest.values += from;
    rest.n -= from;
    return rest;
}

static fsdp_status filter_map(jinja_machine *machine, jinja_value value, const jinja_args *args,
                              jinja_value *out)
{
    treatment t = {.attribute.kind = JINJA_MISSING, .fallback.kind = JINJA_MISSING};
    const jinja_string *name = NULL;
    if (args->n == 0) {
        jinja_value values[2];
        FSDP_TRY(fsdp_jinja_bind("map", "attribute,default", 1, args, values));
        t.attribute = values[0];
        t.fallback = values[1];
        return treat(machine, value, next_mapped, &t, out);
    }
    FSDP_TRY(name_argument("map", args, 0, &name));
    t.filter = fsdp_jinja_find_filter(name);
    if (!t.filter)
        return fsdp_error(FSDP_ERR_INVALID, "map: there is no filter '%.*s'",
                          fsdp_jinja_shown(name), name->data);
    t.args = rest_of(args, 1);
    return treat(machine, value, next_mapped, &t, out);
}

static fsdp_status select_items(jinja_machine *machine, const char *what, jinja_value value,
                                const jinja_args *args, bool keep, bool by_attribute,
                                jinja_value *out)
{
    treatment t = {.attribute.kind = JINJA_MISSING, .keep = keep};
    const size_t at = by_attribute ? 1 : 0;
    const jinja_string *name = NULL;
    if (args->n < at)
        return fsdp_error(FSDP_ERR_INVALID, "%s: the name of an attribute is missing", what);
    if (by_attribute)
        t.attribute = args->values[0];
    if (args->n > at) {
        FSDP_TRY(name_argument(what, args, at, &name));
        t.test = fsdp_jinja_find_test(name);
        if (!t.test)
            return fsdp_error(FSDP_ERR_INVALID, "%s: there is no test '%.*s'", what,
                              fsdp_jinja_shown(name), name->data);
        t.args = rest_of(args, at + 1);
    }
    return treat(machine, value, next_selected, &t, out);
}

static fsdp_status filter_select(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                 jinja_value *out)
{
    return select_items(machine, "select", value, args, true, false, out);
}

static fsdp_status filter_reject(jinja_machine *machine, jinja_value value, const jinja_args *args,
                                 jinja_value *out)
{
    return select_items(machine, "reject", value, args, false, false, out);
}

static fsdp_status filter_selectattr(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    return select_items(machine, "selectattr", value, args, true, true, out);
}

static fsdp_status filter_rejectattr(jinja_machine *machine, jinja_value value,
                                     const jinja_args *args, jinja_value *out)
{
    return select_items(machine, "rejectattr", value, args, false, true, out);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const jinja_filter filters[] = {
    {"abs", fsdp_jinja_filter_abs, false},
    {"attr", NULL, false},
    {"batch", fsdp_jinja_filter_batch, false},
    {"capitalize", fsdp_jinja_filter_capitalize, false},
    {"center", fsdp_jinja_filter_center, false},
    {"count", fsdp_jinja_filter_length, true},
    {"d", fsdp_jinja_filter_default, true},
    {"default", fsdp_jinja_filter_default, true},
    {"dictsort", fsdp_jinja_filter_dictsort, false},
    {"e", fsdp_jinja_filter_escape, true},
    {"escape", fsdp_jinja_filter_escape, true},
    {"filesizeformat", NULL, false},
    {"first", fsdp_jinja_filter_first, false},
    {"float", fsdp_jinja_filter_float, true},
    {"forceescape", NULL, false},
    {"format", NULL, false},
    {"groupby", NULL, false},
    {"indent", fsdp_jinja_filter_indent, false},
    {"int", fsdp_jinja_filter_int, true},
    {"items", fsdp_jinja_filter_items, false},
    {"join", fsdp_jinja_filter_join, false},
    {"last", fsdp_jinja_filter_last, false},
    {"length", fsdp_jinja_filter_length, true},
    {"list", fsdp_jinja_filter_list, false},
    {"lower", fsdp_jinja_filter_lower, false},
    {"map", filter_map, false},
    {"max", fsdp_jinja_filter_max, false},
    {"min", fsdp_jinja_filter_min, false},
    {"pprint", NULL, false},
    {"random", NULL, false},
    {"reject", filter_reject, false},
    {"rejectattr", filter_rejectattr, false},
    {"replace", fsdp_jinja_filter_replace, false},
    {"reverse", fsdp_jinja_filter_reverse, false},
    {"round", fsdp_jinja_filter_round, false},
    {"safe", fsdp_jinja_filter_safe, true},
    {"select", filter_select, false},
    {"selectattr", filter_selectattr, false},
    {"slice", fsdp_jinja_filter_slice, false},
    {"sort", fsdp_jinja_filter_sort, false},
    {"string", fsdp_jinja_filter_string, true},
    {"striptags", NULL, false},
    {"sum", fsdp_jinja_filter_sum, false},
    {"title", fsdp_jinja_filter_title, false},
    {"tojson", fsdp_jinja_filter_tojson, true},
    {"trim", fsdp_jinja_filter_trim, false},
    {"truncate", fsdp_jinja_filter_truncate, false},
    {"unique", fsdp_jinja_filter_unique, false},
    {"upper", fsdp_jinja_filter_upper, false},
    {"urlencode", fsdp_jinja_filter_urlencode, true},
    {"urlize", NULL, false},
    {"wordcount", fsdp_jinja_filter_wordcount, true},
    {"wordwrap", NULL, false},
    {"xmlattr", NULL, false},
};

const jinja_filter *fsdp_jinja_find_filter(const jinja_string *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(filters); i++)
        if (fsdp_jinja_string_is(name, filters[i].name))
            return &filters[i];
    return NULL;
}

fsdp_status fsdp_jinja_call_filter(jinja_machine *machine, const jinja_filter *filter,
                                   jinja_value value, const jinja_args *args, jinja_value *out)
{
    if (!filter->call)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "the filter '%s' is not supported", filter->name);
    if (value.kind == JINJA_STRING && value.safe && !filter->takes_safe)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "the filter '%s' after the filter 'safe' or 'escape' is not supported",
                          filter->name);
    return filter->call(machine, value, args, out);
}
