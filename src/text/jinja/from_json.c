/* Converts JSON values to template values (jinja_value). */
#include <math.h>
#include <string.h>

#include "src/text/jinja/jinja.h"

static fsdp_status string_value(jinja_machine *machine, const char *text, jinja_value *out)
{
    return fsdp_jinja_string(machine, text, strlen(text), out);
}

static fsdp_status convert(jinja_machine *machine, fsdp_json_node node, jinja_value *out);

static fsdp_status convert_array(jinja_machine *machine, fsdp_json_node node, jinja_value *out)
{
    const size_t n = fsdp_json_len(node);
    jinja_value list, item;
    FSDP_TRY(fsdp_jinja_list(machine, n, &list));
    for (size_t i = 0; i < n; i++) {
        FSDP_TRY(convert(machine, fsdp_json_at(node, i), &item));
        FSDP_TRY(fsdp_jinja_list_add(machine, list.as.list, item));
    }
    *out = list;
    return FSDP_OK;
}

static fsdp_status convert_object(jinja_machine *machine, fsdp_json_node node, jinja_value *out)
{
    jinja_value dict, key, value;
    FSDP_TRY(fsdp_jinja_dict(machine, &dict));
    for (fsdp_json_node v = fsdp_json_first(node); v.value; v = fsdp_json_next(v)) {
        FSDP_TRY(string_value(machine, v.key, &key));
        FSDP_TRY(convert(machine, v, &value));
        FSDP_TRY(fsdp_jinja_dict_set(machine, dict.as.dict, key, value));
    }
    *out = dict;
    return FSDP_OK;
}

/* Convert a number that fsdp_json_node cannot represent: an integer of more than 64 bits, NaN or
 * infinity. */
static fsdp_status convert_literal(jinja_machine *machine, const char *literal, bool integer,
                                   jinja_value *out)
{
    if (integer) {
        FSDP_TRY(string_value(machine, literal, out));
        out->kind = JINJA_BIG_INT;
        return FSDP_OK;
    }
    *out = jinja_float(*literal == 'N' ? (double)NAN : *literal == '-' ? -HUGE_VAL : HUGE_VAL);
    return FSDP_OK;
}

static fsdp_status convert_number(jinja_machine *machine, fsdp_json_node node, bool integer,
                                  jinja_value *out)
{
    int64_t whole;
    double real;
    const char *literal = fsdp_json_literal(node);
    if (literal)
        return convert_literal(machine, literal, integer, out);
    if (integer) {
        FSDP_TRY(fsdp_json_get_i64(node, NULL, INT64_MIN, INT64_MAX, &whole));
        *out = jinja_int(whole);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_json_get_f64(node, NULL, &real));
    *out = jinja_float(real);
    return FSDP_OK;
}

static fsdp_status convert(jinja_machine *machine, fsdp_json_node node, jinja_value *out)
{
    const char *text = "";
    size_t length = 0;
    bool truth;
    fsdp_status status;
    const fsdp_json_kind kind = fsdp_json_kind_of(node);
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    switch (kind) {
    case FSDP_JSON_BOOL:
        FSDP_TRY(fsdp_json_get_bool(node, NULL, &truth));
        *out = jinja_bool(truth);
        return FSDP_OK;
    case FSDP_JSON_INT:
    case FSDP_JSON_REAL:
        return convert_number(machine, node, kind == FSDP_JSON_INT, out);
    case FSDP_JSON_STRING:
        FSDP_TRY(fsdp_json_get_strn(node, NULL, &text, &length));
        return fsdp_jinja_string(machine, text, length, out);
    case FSDP_JSON_ARRAY:
    case FSDP_JSON_OBJECT:
        FSDP_TRY(fsdp_jinja_descend(machine));
        status = kind == FSDP_JSON_ARRAY ? convert_array(machine, node, out)
                                         : convert_object(machine, node, out);
        machine->depth--;
        return status;
    case FSDP_JSON_NULL:
    case FSDP_JSON_NONE:
        break;
    }
    *out = jinja_none();
    return FSDP_OK;
}

fsdp_status fsdp_jinja_from_json(jinja_machine *machine, fsdp_json_node node, jinja_value *out)
{
    return convert(machine, node, out);
}
