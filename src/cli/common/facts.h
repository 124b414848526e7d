/* Facts about this program and the machine, for `fsdp --version` and `fsdp env`. They are printed
 * as text, or as one JSON object with the same names. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

#include "src/base/json.h"

typedef struct fsdp_facts {
    FILE *to;               /* the facts are printed here; NULL: they are added to `root` instead */
    fsdp_json_node root;    /* the JSON object */
    fsdp_json_node section; /* the object in `root` to which fsdp_fact() adds */
} fsdp_facts;

/* Add a fact on a line of its own: "compiler: gcc 12.2.0". */
FSDP_PRINTF(3, 4)
void fsdp_fact_line(fsdp_facts *facts, const char *name, const char *format, ...);
/* Begin a section. Later calls of fsdp_fact() add to it. `note` is text after the colon, or NULL.
 */
void fsdp_facts_section(fsdp_facts *facts, const char *name, const char *note);
/* Add a fact to the section. */
FSDP_PRINTF(3, 4)
void fsdp_fact(fsdp_facts *facts, const char *name, const char *format, ...);
/* Add to the section that something is missing: null in JSON, or `text` if facts are printed. */
void fsdp_fact_missing(fsdp_facts *facts, const char *name, const char *text);
