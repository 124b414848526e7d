/* Assigns a slot to each variable of a template.
 *
 * Note [Scopes of a template]
 *
 * Before a template runs, it is decided which variable each name means, by the rules of
 * jinja2/idtracking.py. A for block, a macro, a with block, a set block and a filter block have a
 * scope of their own; an if block does not. A scope that assigns to a name has a variable of its
 * own for this name. If an outer scope has a variable with the same name, the inner variable begins
 * with the value of the outer one. When the inner scope ends, the value of the inner variable is
 * lost, and the outer one has not changed. This is why a loop cannot count in a variable outside of
 * the loop, and why templates use namespace().
 *
 * Jinja2 compiles a template to Python functions: one for the template, one for each macro, one for
 * the body of each call block and generation block, and one for the test of each for block. The
 * variables of the template are local variables of these functions. An inner function sees the
 * current values of the variables of outer functions. Here, an activation (machine.h) has the
 * variables of one call of such a function. A variable is identified by its slot in an activation,
 * and by the number of steps that lead from the current activation outwards to that activation
 * (jinja_slot in ast.h). */
#pragma once
#include "src/text/jinja/ast.h"
#include "src/text/jinja/machine.h"

/* Set the slots of all names in the tree, and the loads of all scopes. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_resolve(jinja_machine *machine, jinja_tree *tree);
