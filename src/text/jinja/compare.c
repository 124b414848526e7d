/* Python's == and < for template values (jinja_value). The functions of dicts are here, too,
 * because a dict compares its keys by ==. */
#include <math.h>
#include <string.h>

#include "src/text/jinja/machine.h"
#include "src/text/jinja/value.h"

static bool is_number(jinja_value value)
{
    return value.kind == JINJA_BOOL || value.kind == JINJA_INT || value.kind == JINJA_FLOAT;
}

static int64_t integer_of(jinja_value value)
{
    return value.kind == JINJA_BOOL ? value.as.boolean : value.as.integer;
}

static int order_of_integers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Compare an integer with a double exactly, without rounding the integer to a double. Return -1, 0
 * or 1, or 2 if b is NaN, as in fsdp_jinja_order(). */
static int order_of_integer_and_real(int64_t a, double b)
{
    if (isnan(b))
        return 2;
    if (b >= 9223372036854775808.0)
        return -1;
    if (b < -9223372036854775808.0)
        return 1;
    const int64_t whole = (int64_t)b;
    if (a != whole)
        return order_of_integers(a, whole);
    const double rest = b - (double)whole;
    return (rest < 0) - (rest > 0);
}

static int order_of_numbers(jinja_value a, jinja_value b)
{
    if (a.kind == JINJA_FLOAT && b.kind == JINJA_FLOAT) {
        if (isnan(a.as.real) || isnan(b.as.real))
            return 2;
        return (a.as.real > b.as.real) - (a.as.real < b.as.real);
    }
    if (a.kind == JINJA_FLOAT) {
        const int order = order_of_integer_and_real(integer_of(b), a.as.real);
        return order == 2 ? 2 : -order;
    }
    if (b.kind == JINJA_FLOAT)
        return order_of_integer_and_real(integer_of(a), b.as.real);
    return order_of_integers(integer_of(a), integer_of(b));
}

/* Compare two strings by their code points. For UTF-8, comparing the bytes gives the same order. */
static int order_of_strings(const jinja_string *a, const jinja_string *b)
{
    const size_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order = common ? memcmp(a->data, b->data, common) : 0;
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static fsdp_status equal_lists(jinja_machine *machine, const jinja_list *a, const jinja_list *b,
                               bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++)
        FSDP_TRY(fsdp_jinja_equal(machine, a->items[i], b->items[i], equal));
    return FSDP_OK;
}

static fsdp_status equal_dicts(jinja_machine *machine, const jinja_dict *a, const jinja_dict *b,
                               bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        jinja_value other;
        FSDP_TRY(fsdp_jinja_dict_get(machine, b, a->entries[i].key, &other));
        *equal = other.kind != JINJA_MISSING;
        if (*equal)
            FSDP_TRY(fsdp_jinja_equal(machine, a->entries[i].value, other, equal));
    }
    return FSDP_OK;
}

static bool equal_ranges(const jinja_range *a, const jinja_range *b)
{
    return a->n == b->n &&
           (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

fsdp_status fsdp_jinja_equal(jinja_machine *machine, jinja_value a, jinja_value b, bool *equal)
{
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    if (is_number(a) && is_number(b)) {
        *equal = order_of_numbers(a, b) == 0;
        return FSDP_OK;
    }
    *equal = false;
    if (a.kind != b.kind)
        return FSDP_OK;
    fsdp_status status = FSDP_OK;
    switch (a.kind) {
    case JINJA_NONE:
    case JINJA_UNDEFINED:
        *equal = true;
        return FSDP_OK;
    case JINJA_STRING:
    case JINJA_BIG_INT:
        *equal = order_of_strings(a.as.string, b.as.string) == 0;
        return fsdp_jinja_charge(machine, *equal ? a.as.string->bytes / 64 : 0);
    case JINJA_RANGE:
        *equal = equal_ranges(a.as.range, b.as.range);
        return FSDP_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        FSDP_TRY(fsdp_jinja_descend(machine));
        status = a.kind == JINJA_DICT ? equal_dicts(machine, a.as.dict, b.as.dict, equal)
                                      : equal_lists(machine, a.as.list, b.as.list, equal);
        machine->depth--;
        return status;
    case JINJA_VIEW:
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "comparing views of dicts is not supported");
    default:
        *equal = a.as.dict == b.as.dict;
        return FSDP_OK;
    }
}

static fsdp_status order_of_lists(jinja_machine *machine, const jinja_list *a, const jinja_list *b,
                                  int *order)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool equal;
        FSDP_TRY(fsdp_jinja_equal(machine, a->items[i], b->items[i], &equal));
        if (!equal)
            return fsdp_jinja_order(machine, a->items[i], b->items[i], order);
    }
    *order = (a->n > b->n) - (a->n < b->n);
    return FSDP_OK;
}

fsdp_status fsdp_jinja_order(jinja_machine *machine, jinja_value a, jinja_value b, int *order)
{
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return fsdp_jinja_undefined_error(a.kind == JINJA_UNDEFINED ? a : b);
    if (is_number(a) && is_number(b)) {
        *order = order_of_numbers(a, b);
        return FSDP_OK;
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *order = order_of_strings(a.as.string, b.as.string);
        *order = (*order > 0) - (*order < 0);
        return FSDP_OK;
    }
    if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) {
        FSDP_TRY(fsdp_jinja_descend(machine));
        const fsdp_status status = order_of_lists(machine, a.as.list, b.as.list, order);
        machine->depth--;
        return status;
    }
    if (a.kind == JINJA_BIG_INT || b.kind == JINJA_BIG_INT)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "integers that do not fit in 64 bits cannot be compared");
    return fsdp_error(FSDP_ERR_INVALID, "'<' is not supported between '%s' and '%s'",
                      fsdp_jinja_type_name(a), fsdp_jinja_type_name(b));
}

/* ---- dicts ----------------------------------------------------------------------------------- */

enum {
    TABLE_MIN = 8 /* a dict with fewer entries has no hash table */
};

static uint64_t hash_bytes(const char *data, size_t bytes)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
    return hash ^ hash >> 29;
}

/* Return the hash of a number. Equal numbers of different types, such as 1, 1.0 and True, must have
 * the same hash. */
static uint64_t hash_number(double number)
{
    char bytes[sizeof number];
    if (number == 0.0)
        number = 0.0;
    memcpy(bytes, &number, sizeof number);
    return hash_bytes(bytes, sizeof bytes);
}

static fsdp_status hash_value(jinja_machine *machine, jinja_value value, uint64_t *hash)
{
    switch (value.kind) {
    case JINJA_STRING:
    case JINJA_BIG_INT:
        *hash = hash_bytes(value.as.string->data, value.as.string->bytes);
        return fsdp_jinja_charge(machine, value.as.string->bytes / 64);
    case JINJA_BOOL:
        *hash = hash_number(value.as.boolean);
        return FSDP_OK;
    case JINJA_INT:
        *hash = hash_number((double)value.as.integer);
        return FSDP_OK;
    case JINJA_FLOAT:
        *hash = hash_number(value.as.real);
        return FSDP_OK;
    case JINJA_NONE:
    case JINJA_UNDEFINED:
        *hash = (uint64_t)value.kind;
        return FSDP_OK;
    case JINJA_TUPLE: {
        uint64_t all = 7;
        FSDP_TRY(fsdp_jinja_descend(machine));
        fsdp_status status = FSDP_OK;
        for (size_t i = 0; status == FSDP_OK && i < value.as.list->n; i++) {
            uint64_t one = 0;
            status = hash_value(machine, value.as.list->items[i], &one);
            all = all * 1000003u + one;
        }
        machine->depth--;
        *hash = all;
        return status;
    }
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_VIEW:
        break;
    default: /* ranges, functions and others: all values of one kind have the same hash */
        *hash = (uint64_t)value.kind;
        return FSDP_OK;
    }
    return fsdp_error(FSDP_ERR_INVALID, "unhashable type: '%s'", fsdp_jinja_type_name(value));
}

/* Find the entry with the key `key`. If the dict has a hash table, the table is used. Set *index to
 * the index of the entry, or to dict->n if there is no such entry. */
static fsdp_status find_entry(jinja_machine *machine, const jinja_dict *dict, jinja_value key,
                              size_t *index)
{
    uint64_t hash;
    bool equal = false;
    FSDP_TRY(hash_value(machine, key, &hash));
    if (!dict->table) {
        for (*index = 0; *index < dict->n; ++*index) {
            FSDP_TRY(fsdp_jinja_equal(machine, dict->entries[*index].key, key, &equal));
            if (equal)
                return FSDP_OK;
        }
        return FSDP_OK;
    }
    for (size_t at = hash & (dict->table_size - 1); dict->table[at];
         at = (at + 1) & (dict->table_size - 1)) {
        FSDP_TRY(fsdp_jinja_charge(machine, 1));
        *index = dict->table[at] - 1;
        FSDP_TRY(fsdp_jinja_equal(machine, dict->entries[*index].key, key, &equal));
        if (equal)
            return FSDP_OK;
    }
    *index = dict->n;
    return FSDP_OK;
}

static void put_in_table(jinja_dict *dict, uint64_t hash, size_t index)
{
    size_t at = hash & (dict->table_size - 1);
    while (dict->table[at])
        at = (at + 1) & (dict->table_size - 1);
    dict->table[at] = (uint32_t)index + 1;
}

/* If the hash table would be more than half full after one more entry, make a larger one. */
static fsdp_status grow_table(jinja_machine *machine, jinja_dict *dict)
{
    if (dict->n < TABLE_MIN || 2 * (dict->n + 1) <= dict->table_size)
        return FSDP_OK;
    const size_t size = dict->table_size ? 4 * dict->table_size : 4 * TABLE_MIN;
    FSDP_TRY(fsdp_jinja_alloc(machine, size * sizeof *dict->table, &dict->table));
    dict->table_size = size;
    for (size_t i = 0; i < dict->n; i++) {
        uint64_t hash;
        FSDP_TRY(hash_value(machine, dict->entries[i].key, &hash));
        put_in_table(dict, hash, i);
    }
    return FSDP_OK;
}

fsdp_status fsdp_jinja_dict(jinja_machine *machine, jinja_value *out)
{
    jinja_dict *dict;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *dict, &dict));
    *out = (jinja_value){.kind = JINJA_DICT, .as.dict = dict};
    return FSDP_OK;
}

fsdp_status fsdp_jinja_dict_set(jinja_machine *machine, jinja_dict *dict, jinja_value key,
                                jinja_value value)
{
    size_t index;
    uint64_t hash;
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    FSDP_TRY(find_entry(machine, dict, key, &index));
    if (index < dict->n) {
        dict->entries[index].value = value;
        return FSDP_OK;
    }
    if (dict->n == dict->cap) {
        const size_t cap = dict->cap ? 2 * dict->cap : 4;
        jinja_entry *entries;
        FSDP_TRY(fsdp_jinja_alloc(machine, cap * sizeof *entries, &entries));
        if (dict->n)
            memcpy(entries, dict->entries, dict->n * sizeof *entries);
        dict->entries = entries;
        dict->cap = cap;
    }
    FSDP_TRY(grow_table(machine, dict));
    FSDP_TRY(hash_value(machine, key, &hash));
    if (dict->table)
        put_in_table(dict, hash, dict->n);
    dict->entries[dict->n++] = (jinja_entry){key, value};
    return FSDP_OK;
}

fsdp_status fsdp_jinja_dict_get(jinja_machine *machine, const jinja_dict *dict, jinja_value key,
                                jinja_value *out)
{
    size_t index;
    FSDP_TRY(find_entry(machine, dict, key, &index));
    *out = index < dict->n ? dict->entries[index].value : (jinja_value){.kind = JINJA_MISSING};
    return FSDP_OK;
}

static bool key_is(const jinja_entry *entry, const char *name, size_t bytes)
{
    return entry->key.kind == JINJA_STRING && entry->key.as.string->bytes == bytes &&
           memcmp(entry->key.as.string->data, name, bytes) == 0;
}

jinja_value fsdp_jinja_dict_find(const jinja_dict *dict, const char *name, size_t bytes)
{
    const jinja_value missing = {.kind = JINJA_MISSING};
    if (!dict->table) {
        for (size_t i = 0; i < dict->n; i++)
            if (key_is(&dict->entries[i], name, bytes))
                return dict->entries[i].value;
        return missing;
    }
    for (size_t at = hash_bytes(name, bytes) & (dict->table_size - 1); dict->table[at];
         at = (at + 1) & (dict->table_size - 1)) {
        const jinja_entry *entry = &dict->entries[dict->table[at] - 1];
        if (key_is(entry, name, bytes))
            return entry->value;
    }
    return missing;
}
