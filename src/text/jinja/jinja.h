/* Templates in the part of the language Jinja2 that chat templates use.
 *
 * A template is run in the same way as in transformers: in jinja2's ImmutableSandboxedEnvironment
 * with trim_blocks, lstrip_blocks, the extension loopcontrols, the block {% generation %}, and
 * transformers' own tojson, dict, namespace, raise_exception and strftime_now. Values are printed
 * as in Python: True, None, floats and lists as by str(). The length of a text is its number of
 * code points. If a template uses something that is not supported, opening it fails with a message
 * that contains the name and the line. If only some values of the variables lead to such a use,
 * opening succeeds, and rendering fails for these values.
 *
 * This folder has more than 25 source files, because each file is one part of the language and is
 * named after this part. No part is of use without the others. */
#pragma once
#include "src/base/json.h"
#include "src/text/jinja/machine.h"

typedef struct fsdp_jinja fsdp_jinja;

/* Parse a template. `source` [bytes] is needed only during the call. If the result is
 * FSDP_ERR_FORMAT or FSDP_ERR_UNSUPPORTED, the error message begins with the line, unless the
 * template is not UTF-8 or has more than JINJA_MAX_SOURCE bytes. An open template does not change,
 * so several threads may use it at the same time. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_open(const char *source, size_t bytes, fsdp_jinja **out);
void fsdp_jinja_close(fsdp_jinja *jinja); /* accepts NULL */
/* Return true if the template has a {% generation %} block. */
bool fsdp_jinja_has_generation(const fsdp_jinja *jinja);

/* Initialize a machine. A machine renders templates and owns values. Free its memory with
 * fsdp_jinja_fini(). */
void fsdp_jinja_init(jinja_machine *machine);
void fsdp_jinja_fini(jinja_machine *machine);

/* Convert a JSON value to a template value (jinja_value), which is valid until
 * fsdp_jinja_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_from_json(jinja_machine *machine, fsdp_json_node node,
                                                 jinja_value *out);
/* Set the entry `name` of `given`, the dict of variables for a rendering, to `value`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_give(jinja_machine *machine, jinja_value given,
                                            const char *name, jinja_value value);

/* Render a template. `given` is a dict of the template's variables. The caller owns *text, which
 * ends with NUL, and frees it with fsdp_free(). machine->spans has the texts of the {% generation
 * %} blocks until the next rendering or fsdp_jinja_fini(). A machine may render several times. The
 * limits of steps and memory are for all of its renderings together. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_render(const fsdp_jinja *jinja, jinja_machine *machine,
                                              jinja_value given, char **text, size_t *bytes);
