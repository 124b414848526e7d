/* Evaluates the expressions of a template. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/ast.h"
#include "src/text/jinja/machine.h"

/* The value of a macro: its code, and the activation of the function that contains it. */
typedef struct jinja_macro {
    const jinja_macro_node *node;
    jinja_activation *outer;
} jinja_macro;

/* Evaluate an expression. The message of an error begins with the line. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_evaluate(jinja_machine *machine, const jinja_node *node,
                                                jinja_value *out);
/* Evaluate a node of type JINJA_NODE_CALL with one more keyword argument. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_evaluate_call(jinja_machine *machine, const jinja_node *node,
                                                     const jinja_keyword *extra, jinja_value *out);
/* Put the line of `node` before the message of an error, unless an inner node did. Return
 * `status`. */
fsdp_status fsdp_jinja_locate(jinja_machine *machine, const jinja_node *node, fsdp_status status);
/* Return a pointer to the variable that `slot` describes, as seen from the current activation. */
jinja_value *fsdp_jinja_slot(const jinja_machine *machine, jinja_slot slot);
