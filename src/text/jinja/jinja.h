/* Templates in the part of Jinja2 that chat templates use.
 *
 * A template runs as transformers runs it: in jinja2's ImmutableSandboxedEnvironment with
 * trim_blocks, lstrip_blocks, the extension loopcontrols, the block {% generation %}, and
 * transformers' own tojson, dict, namespace, raise_exception and strftime_now. Texts are Python's:
 * str() of True, None, floats and lists, lengths in code points. What is not supported is refused
 * by name and line when the template is opened, or when it runs if it depends on values.
 *
 * More than 25 source files: each file is one part of the language, named after it, and none is
 * useful without the others. */
#pragma once
#include "src/base/json.h"
#include "src/text/jinja/machine.h"

typedef struct fsdp_jinja fsdp_jinja;

/* Parse a template. `source` [bytes] is not kept. On FSDP_ERR_FORMAT and FSDP_ERR_UNSUPPORTED the
 * message begins with the line. An open template does not change, so several threads may use it at
 * the same time. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_open(const char *source, size_t bytes, fsdp_jinja **out);
void fsdp_jinja_close(fsdp_jinja *jinja); /* accepts NULL */
/* Return true if the template has a {% generation %} block. */
bool fsdp_jinja_has_generation(const fsdp_jinja *jinja);

/* Initialise a machine, which renders templates and owns values. End it with fsdp_jinja_fini(). */
void fsdp_jinja_init(jinja_machine *machine);
void fsdp_jinja_fini(jinja_machine *machine);

/* Convert a JSON value. The result lives as long as the machine. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_from_json(jinja_machine *machine, fsdp_json_node node,
                                                 jinja_value *out);
/* Set the variable `name` of `given`, a dict. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_give(jinja_machine *machine, jinja_value given,
                                            const char *name, jinja_value value);

/* Render a template with the variables `given`, a dict. The caller owns *text, which is
 * NUL-terminated, and frees it with fsdp_free(). Until the next rendering or fsdp_jinja_fini(),
 * machine->spans has the texts of the {% generation %} blocks. A machine may render several times;
 * all renderings together have one limit of steps and memory. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_render(const fsdp_jinja *jinja, jinja_machine *machine,
                                              jinja_value given, char **text, size_t *bytes);
