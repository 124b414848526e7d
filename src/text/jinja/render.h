/* Runs the statements of a template. */
#pragma once
#include "src/text/jinja/ast.h"
#include "src/text/jinja/machine.h"

/* Run a template with the variables `given`. *text gets the text, also when this fails; the caller
 * frees it with fsdp_str_fini(). machine->spans gets the texts of the {% generation %} blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_run(jinja_machine *machine, const jinja_tree *tree,
                                           const jinja_dict *given, fsdp_str *text);
