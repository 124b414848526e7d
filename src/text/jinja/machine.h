/* A machine is the state of renderings: their memory, their limits and the variables of the
 * template.
 *
 * A template is a program that comes with a model, so it is not trusted. Everything that it
 * computes costs steps and memory of the machine, and both are limited. Nothing outlives the
 * machine except the text that it produces. */
#pragma once
#include "src/base/arena.h"
#include "src/base/str.h"
#include "src/text/jinja/value.h"

enum {
    JINJA_MAX_DEPTH = 1000,              /* nesting of blocks, expressions, calls and values */
    JINJA_MAX_TEXT = 64 * 1024 * 1024,   /* bytes of a string or of the output */
    JINJA_MAX_MEMORY = 512 * 1024 * 1024 /* bytes that one machine allocates */
};
#define JINJA_MAX_STEPS 20000000ull

/* The variables of one call of a macro, of the template itself, or of another function that
 * Jinja2's compiler makes: see Note [Scopes of a template] in symbols.h. */
typedef struct jinja_activation {
    struct jinja_activation *outer; /* the activation of the function around this one; NULL for the
                                       template */
    jinja_value *slots;
} jinja_activation;

/* A text that is being written: that of the template, or of a macro, a set block or another block
 * whose text is captured. */
typedef struct jinja_output {
    struct jinja_output *outer; /* NULL for the text of the template */
    fsdp_str text;
} jinja_output;

/* The text of a {% generation %} block. */
typedef struct jinja_span {
    size_t begin, end; /* offsets in bytes */
    const jinja_string *text;
    int line; /* where the block begins */
} jinja_span;

typedef struct jinja_machine {
    fsdp_arena arena;
    uint64_t steps_left;
    int depth;
    bool located; /* the error message has the line already */
    /* Variables that the caller gives, such as messages. */
    const jinja_dict *given;
    jinja_activation *activation;
    jinja_output *output;
    jinja_value captured; /* the text of a set block or filter block, which its filters are applied
                             to */
    jinja_span *spans;    /* [n_spans], allocated with fsdp_realloc() */
    size_t n_spans, spans_cap;
    /* Runs the body of a macro; set by render.c, because expressions call macros, and the bodies of
     * macros contain expressions. */
    fsdp_status (*call_macro)(struct jinja_machine *machine, const struct jinja_macro *macro,
                              const struct jinja_args *args, jinja_value *out);
} jinja_machine;

/* Allocate `bytes` bytes, filled with zeros, that live as long as the machine. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_alloc(jinja_machine *machine, size_t bytes, void *out);
/* Count `steps` more steps. Return FSDP_ERR_INVALID if there were too many. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_charge(jinja_machine *machine, uint64_t steps);
/* Enter a deeper level of recursion; end it with `machine->depth--`, unless this fails. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_descend(jinja_machine *machine);
