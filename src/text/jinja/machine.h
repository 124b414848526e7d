/* A machine is the state of one or more renderings: their memory, their limits and the variables of
 * the template.
 *
 * A template is a program that comes with a model, so it is not trusted. Everything that a template
 * computes costs steps and memory of the machine, and both are limited. All memory of the machine
 * is freed by fsdp_jinja_fini(). Only the text of a rendering is passed to the caller. */
#pragma once
#include "src/base/arena.h"
#include "src/base/str.h"
#include "src/text/jinja/value.h"

enum {
    /* largest depth of nested blocks, expressions, calls and values */
    JINJA_MAX_DEPTH = 1000,
    JINJA_MAX_TEXT = 64 * 1024 * 1024,   /* largest size of a string or of the output, in bytes */
    JINJA_MAX_MEMORY = 512 * 1024 * 1024 /* largest number of bytes that one machine may allocate */
};
#define JINJA_MAX_STEPS 20000000ull

/* The variables of one call of a function. A function is the template itself, a macro, or another
 * function that Jinja2's compiler would make; see Note [Scopes of a template] in symbols.h. */
typedef struct jinja_activation {
    /* the activation of the function that contains this function; NULL for the template */
    struct jinja_activation *outer;
    jinja_value *slots;
} jinja_activation;

/* A text that is being written: the text of the template, or the text of a macro, a set block or
 * another block whose text is captured. */
typedef struct jinja_output {
    /* the output that is current again after this one has ended; NULL for the text of the
     * template */
    struct jinja_output *outer;
    fsdp_str text;
} jinja_output;

/* The text of a {% generation %} block, and its position in the text of the template. */
typedef struct jinja_span {
    size_t begin, end; /* offsets in bytes */
    const jinja_string *text;
    int line; /* the line of the template in which the block begins */
} jinja_span;

typedef struct jinja_machine {
    fsdp_arena arena;
    uint64_t steps_left;
    int depth;
    bool located; /* the error message contains the line already */
    /* The variables that the caller of the rendering gives, such as "messages". */
    const jinja_dict *given;
    jinja_activation *activation;
    jinja_output *output;
    /* the text of a set block or filter block, while the block's filters are applied to it */
    jinja_value captured;
    jinja_span *spans; /* [n_spans], allocated with fsdp_realloc() */
    size_t n_spans, spans_cap;
    /* Runs the body of a macro. evaluate.c calls the function of render.c through this pointer,
     * because render.c already calls evaluate.c, and files call each other in one direction
     * only. */
    fsdp_status (*call_macro)(struct jinja_machine *machine, const struct jinja_macro *macro,
                              const struct jinja_args *args, jinja_value *out);
} jinja_machine;

/* Set *out to `bytes` bytes of memory that is filled with zeros and is valid until
 * fsdp_jinja_fini(). `out` is a pointer to a pointer. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_alloc(jinja_machine *machine, size_t bytes, void *out);
/* Add `steps` to the steps that the machine has done. Return FSDP_ERR_INVALID if the limit is
 * exceeded. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_charge(jinja_machine *machine, uint64_t steps);
/* Increase machine->depth, the depth of recursion. Return an error if it would be too large. After
 * success, the caller must do `machine->depth--` at the end. */
FSDP_MUST_CHECK fsdp_status fsdp_jinja_descend(jinja_machine *machine);
