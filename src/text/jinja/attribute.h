/* Attributes, items and slices of values, as Jinja2's sandbox gives them: value.name, value[key],
 * value[1:2]. */
#pragma once
#include "src/text/jinja/value.h"

/* value.name: the attribute, else the item, else an undefined value. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_get_attribute(struct jinja_machine *machine,
                                                     jinja_value value, jinja_string *name,
                                                     jinja_value *out);
/* value[key]: the item, else the attribute, else an undefined value. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_get_item(struct jinja_machine *machine, jinja_value value,
                                                jinja_value key, jinja_value *out);
/* value[start:stop:step]; a bound that is None or missing has Python's default. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_slice(struct jinja_machine *machine, jinja_value value,
                                             jinja_value start, jinja_value stop, jinja_value step,
                                             jinja_value *out);
/* Set *out to the value of a path such as "function.name" or "0", which filters take as their
 * `attribute`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_get_path(struct jinja_machine *machine, jinja_value value,
                                                jinja_value path, jinja_value *out);
