/* Assigns a slot to each variable of a template.
 *
 * Note [Scopes of a template]
 *
 * Which variable a name means is decided before the template runs, by the rules of
 * jinja2/idtracking.py. A for block, a macro, a with block, a set block and a filter block have a
 * scope of their own; an if block does not. A scope that assigns to a name has a variable of its
 * own for the name. If an outer scope has a variable of this name, too, the inner variable begins
 * with the value of the outer one, and loses what was assigned to it when its scope ends. This is
 * why a loop cannot count in a variable outside of it, and why templates use namespace().
 *
 * Jinja2 compiles a template to Python functions: one for the template, for each macro, for the
 * body of each call block and generation block, and for the test of a for block. Their variables
 * are Python's local variables, and inner functions see those of outer ones at the time of the
 * call. An activation (machine.h) holds the variables of one call of such a function. A variable is
 * found by the number of functions to go outwards, and its slot in the activation of that
 * function. */
#pragma once
#include "src/text/jinja/ast.h"
#include "src/text/jinja/machine.h"

/* Fill in the slots of all names and the loads of all scopes. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_resolve(jinja_machine *machine, jinja_tree *tree);
