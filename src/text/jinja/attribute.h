/* Attributes, items and slices of values: value.name, value[key] and value[1:2], with the same
 * results as in Jinja2's sandbox. */
#pragma once
#include "src/text/jinja/value.h"

/* Set *out to value.name. This is the attribute `name`. If the value has no such attribute, it is
 * the item with the key `name`. If there is no such item either, it is an undefined value. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_get_attribute(struct jinja_machine *machine,
                                                     jinja_value value, jinja_string *name,
                                                     jinja_value *out);
/* Set *out to value[key]. This is the item with the key `key`. If the value has no such item, it is
 * the attribute with this name. If there is no such attribute either, it is an undefined value. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_get_item(struct jinja_machine *machine, jinja_value value,
                                                jinja_value key, jinja_value *out);
/* Set *out to value[start:stop:step]. A bound that is None or missing has Python's default
 * value. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_slice(struct jinja_machine *machine, jinja_value value,
                                             jinja_value start, jinja_value stop, jinja_value step,
                                             jinja_value *out);
/* Set *out to the part of `value` to which `path` leads, such as "function.name" or "0". Some
 * filters have an argument `attribute` that is such a path. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_get_path(struct jinja_machine *machine, jinja_value value,
                                                jinja_value path, jinja_value *out);
/* Do what fsdp_jinja_get_path() does, but use `fallback` for each part of the path that is
 * undefined, unless `fallback` is None or missing. As in Jinja, the next part of the path is then
 * looked up in `fallback`. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_get_path_or(struct jinja_machine *machine, jinja_value value,
                                                   jinja_value path, jinja_value fallback,
                                                   jinja_value *out);
