/* The operators + - * / // % ** of Python, and rounding. */
#pragma once
#include "src/text/jinja/value.h"

typedef enum jinja_operator {
    JINJA_ADD,
    JINJA_SUBTRACT,
    JINJA_MULTIPLY,
    JINJA_DIVIDE,
    JINJA_FLOOR_DIVIDE,
    JINJA_MODULO,
    JINJA_POWER,
} jinja_operator;

/* Set *out to the result of `a op b`. If the result is an integer that does not fit into 64 bits,
 * return FSDP_ERR_UNSUPPORTED. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_operate(struct jinja_machine *machine, jinja_operator op,
                                               jinja_value a, jinja_value b, jinja_value *out);
FSDP_MUST_CHECK fsdp_status fsdp_jinja_negate(jinja_value a, bool plus, jinja_value *out);
/* Set *out to Python's abs(a). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_absolute(jinja_value a, jinja_value *out);
/* Set *out to Python's round(number, digits). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_round(jinja_value number, int64_t digits, jinja_value *out);
/* Set *out to `real` without its fraction, as an integer: Python's int(real). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_truncate(double real, jinja_value *out);
