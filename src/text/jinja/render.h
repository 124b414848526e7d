/* Runs the statements of a template. */
#pragma once
#include "src/text/jinja/ast.h"
#include "src/text/jinja/machine.h"

/* Run a template with the variables `given`. Set *text to the text that the template has written,
 * even on failure. The caller frees it with fsdp_str_fini(). Set machine->spans to the texts of the
 * {% generation %} blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_run(jinja_machine *machine, const jinja_tree *tree,
                                           const jinja_dict *given, fsdp_str *text);
