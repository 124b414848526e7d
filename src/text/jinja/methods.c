/* The methods of dicts, lists and ranges, and the function that looks up the methods of all
 * types. */
#include "src/text/jinja/methods.h"

#include <string.h>

#include "src/text/jinja/iterate.h"
#include "src/text/jinja/machine.h"

/* ---- dicts ----------------------------------------------------------------------------------- */

static fsdp_status make_view(jinja_machine *machine, jinja_value self, const jinja_args *args,
                             jinja_view_kind kind, jinja_value *out)
{
    jinja_view *view;
    FSDP_TRY(fsdp_jinja_bind("the method of dict", "", 0, args, NULL));
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *view, &view));
    *view = (jinja_view){.dict = self.as.dict, .kind = kind};
    *out = (jinja_value){.kind = JINJA_VIEW, .as.view = view};
    return FSDP_OK;
}

static fsdp_status items(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    return make_view(machine, self, args, JINJA_VIEW_ITEMS, out);
}

static fsdp_status keys(jinja_machine *machine, jinja_value self, const jinja_args *args,
                        jinja_value *out)
{
    return make_view(machine, self, args, JINJA_VIEW_KEYS, out);
}

static fsdp_status values_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                             jinja_value *out)
{
    return make_view(machine, self, args, JINJA_VIEW_VALUES, out);
}

static fsdp_status get(jinja_machine *machine, jinja_value self, const jinja_args *args,
                       jinja_value *out)
{
    jinja_value values[2], found;
    FSDP_TRY(fsdp_jinja_bind("get", "key,default", 1, args, values));
    FSDP_TRY(fsdp_jinja_dict_get(machine, self.as.dict, values[0], &found));
    *out = found.kind != JINJA_MISSING       ? found
           : values[1].kind != JINJA_MISSING ? values[1]
                                             : jinja_none();
    return FSDP_OK;
}

static fsdp_status copy_dict(jinja_machine *machine, jinja_value self, const jinja_args *args,
                             jinja_value *out)
{
    (void)machine;
    FSDP_TRY(fsdp_jinja_bind("copy", "", 0, args, NULL));
    *out = self; /* no copy is needed, because templates cannot change a dict */
    return FSDP_OK;
}

static const jinja_method_entry dict_methods[] = {
    {"copy", copy_dict}, {"fromkeys", NULL},    {"get", get}, {"items", items},
    {"keys", keys},      {"values", values_of}, {NULL, NULL},
};

/* ---- lists, tuples and ranges ---------------------------------------------------------------- */

static fsdp_status count(jinja_machine *machine, jinja_value self, const jinja_args *args,
                         jinja_value *out)
{
    jinja_value wanted, item;
    jinja_iterator *it;
    int64_t n = 0;
    FSDP_TRY(fsdp_jinja_bind("count", "value", 1, args, &wanted));
    FSDP_TRY(fsdp_jinja_iterate(machine, self, &it));
    for (;;) {
        bool equal;
        FSDP_TRY(fsdp_jinja_next(machine, it, &item));
        if (item.kind == JINJA_MISSING)
            break;
        FSDP_TRY(fsdp_jinja_equal(machine, item, wanted, &equal));
        n += equal;
    }
    *out = jinja_int(n);
    return FSDP_OK;
}

static fsdp_status index_of(jinja_machine *machine, jinja_value self, const jinja_args *args,
                            jinja_value *out)
{
    jinja_value wanted, item;
    jinja_iterator *it;
    FSDP_TRY(fsdp_jinja_bind("index", "value", 1, args, &wanted));
    FSDP_TRY(fsdp_jinja_iterate(machine, self, &it));
    for (int64_t i = 0;; i++) {
        bool equal;
        FSDP_TRY(fsdp_jinja_next(machine, it, &item));
        if (item.kind == JINJA_MISSING)
            return fsdp_error(FSDP_ERR_INVALID, "index: the value is not in the list");
        FSDP_TRY(fsdp_jinja_equal(machine, item, wanted, &equal));
        if (equal) {
            *out = jinja_int(i);
            return FSDP_OK;
        }
    }
}

static const jinja_method_entry list_methods[] = {
    {"copy", copy_dict}, {"count", count}, {"index", index_of}, {NULL, NULL}};
static const jinja_method_entry tuple_methods[] = {
    {"count", count}, {"index", index_of}, {NULL, NULL}};
static const jinja_method_entry range_methods[] = {{"count", count}, {"index", index_of},
                                                   {"start", NULL},  {"stop", NULL},
                                                   {"step", NULL},   {NULL, NULL}};
static const jinja_method_entry view_methods[] = {
    {"isdisjoint", NULL}, {"mapping", NULL}, {NULL, NULL}};
static const jinja_method_entry int_methods[] = {{"as_integer_ratio", NULL},
                                                 {"bit_count", NULL},
                                                 {"bit_length", NULL},
                                                 {"conjugate", NULL},
                                                 {"denominator", NULL},
                                                 {"from_bytes", NULL},
                                                 {"imag", NULL},
                                                 {"numerator", NULL},
                                                 {"real", NULL},
                                                 {"to_bytes", NULL},
                                                 {NULL, NULL}};
static const jinja_method_entry float_methods[] = {{"as_integer_ratio", NULL},
                                                   {"conjugate", NULL},
                                                   {"fromhex", NULL},
                                                   {"hex", NULL},
                                                   {"imag", NULL},
                                                   {"is_integer", NULL},
                                                   {"real", NULL},
                                                   {NULL, NULL}};
static const jinja_method_entry iterator_methods[] = {
    {"close", NULL}, {"send", NULL}, {"throw", NULL}, {NULL, NULL}};

/* ---- lookup ---------------------------------------------------------------------------------- */

static const jinja_method_entry *methods_of(jinja_kind kind)
{
    static const jinja_method_entry none[] = {{NULL, NULL}};
    switch (kind) {
    case JINJA_STRING:
        return fsdp_jinja_text_methods;
    case JINJA_DICT:
        return dict_methods;
    case JINJA_LIST:
        return list_methods;
    case JINJA_TUPLE:
        return tuple_methods;
    case JINJA_RANGE:
        return range_methods;
    case JINJA_VIEW:
        return view_methods;
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_BIG_INT:
        return int_methods;
    case JINJA_FLOAT:
        return float_methods;
    case JINJA_ITERATOR:
        return iterator_methods;
    default:
        return none;
    }
}

/* Return true if `name` is a method of lists or dicts that changes the value, which Jinja2's
 * sandbox forbids. */
static bool is_unsafe(jinja_kind kind, const jinja_string *name)
{
    static const char *const of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const of_lists[] = {"append", "clear",   "extend", "insert", "pop",
                                           "remove", "reverse", "sort",   NULL};
    const char *const *names = kind == JINJA_DICT ? of_dicts : kind == JINJA_LIST ? of_lists : NULL;
    for (size_t i = 0; names && names[i]; i++)
        if (fsdp_jinja_string_is(name, names[i]))
            return true;
    return false;
}

fsdp_status fsdp_jinja_find_method(jinja_machine *machine, jinja_value self,
                                   const jinja_string *name, jinja_lookup *lookup, jinja_value *out)
{
    *lookup = JINJA_LOOKUP_NONE;
    if (is_unsafe(self.kind, name)) {
        *lookup = JINJA_LOOKUP_UNSAFE;
        return FSDP_OK;
    }
    for (const jinja_method_entry *entry = methods_of(self.kind); entry->name; entry++) {
        if (!fsdp_jinja_string_is(name, entry->name))
            continue;
        jinja_method *method;
        FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *method, &method));
        *method = (jinja_method){.self = self, .entry = entry};
        *out = (jinja_value){.kind = JINJA_METHOD, .as.method = method};
        *lookup = JINJA_LOOKUP_FOUND;
        return FSDP_OK;
    }
    return FSDP_OK;
}
