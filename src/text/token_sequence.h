/* The tokens of one text, before the post-processor. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_token_place {
    uint32_t begin, end;                      /* its part of the original text */
    uint32_t leading_spaces, trailing_spaces; /* characters of the token that are white space; only
                                                with want_spaces */
} fsdp_token_place;

/* Initialise with {0} and what is wanted. */
typedef struct fsdp_token_sequence {
    fsdp_token_list ids;
    fsdp_token_place *places; /* [ids.len] if want_places; owned */
    size_t places_cap;
    bool want_places;
    bool want_spaces;
} fsdp_token_sequence;
