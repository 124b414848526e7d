/* Evaluates the expressions of a template. */
#pragma once
#include "src/text/jinja/arguments.h"
#include "src/text/jinja/ast.h"
#include "src/text/jinja/machine.h"

/* The value of a macro: its node in the tree, and the activation of the function that defines the
 * macro. */
typedef struct jinja_macro {
    const jinja_macro_node *node;
    jinja_activation *outer;
} jinja_macro;

/* Evaluate an expression. An error message begins with the line of the expression. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_evaluate(jinja_machine *machine, const jinja_node *node,
                                                jinja_value *out);
/* Evaluate a node of type JINJA_NODE_CALL. The keyword argument `extra` is passed in addition to
 * the arguments in the template. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_evaluate_call(jinja_machine *machine, const jinja_node *node,
                                                     const jinja_keyword *extra, jinja_value *out);
/* If `status` is an error, put the line of `node` before the error message, unless this was done
 * for an inner node already. Return `status`. */
fsdp_status fsdp_jinja_locate(jinja_machine *machine, const jinja_node *node, fsdp_status status);
/* Return a pointer to the variable in slot `slot`. The search for the slot starts at the current
 * activation. */
jinja_value *fsdp_jinja_slot(const jinja_machine *machine, jinja_slot slot);
