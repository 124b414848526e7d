/* Converts values to text (Python's str() and repr(), and the filter tojson) and to booleans
 * (Python's bool()). */
#pragma once
#include "src/text/jinja/value.h"

struct fsdp_str;

/* Set *out to a string with str(value). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_str(struct jinja_machine *machine, jinja_value value,
                                           jinja_value *out);
/* Set *out to a string with repr(value). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_repr(struct jinja_machine *machine, jinja_value value,
                                            jinja_value *out);
/* Return Python's bool(value). */
bool fsdp_jinja_truth(jinja_value value);

typedef struct jinja_json_style {
    bool ascii; /* true: escape all characters that are not ASCII */
    bool sort_keys;
    /* the text for one level of indentation; NULL: everything is on one line */
    const jinja_string *indent;
    const jinja_string *between_items, *after_key; /* separators; NULL: the default */
} jinja_json_style;

/* Set *out to a string with json.dumps(value). */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_to_json(struct jinja_machine *machine, jinja_value value,
                                               const jinja_json_style *style, jinja_value *out);
