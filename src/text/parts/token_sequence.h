/* The tokens of one text, before the post-processor. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_token_place {
    uint32_t begin, end;                      /* the token's part of the original text */
    uint32_t leading_spaces, trailing_spaces; /* number of white space characters at the beginning
                                                 and end of the token; set only with want_spaces */
} fsdp_token_place;

/* Initialise with {0}, and set want_places and want_spaces. */
typedef struct fsdp_token_sequence {
    fsdp_token_list ids;
    fsdp_token_place *places; /* [ids.len] if want_places; owned */
    size_t places_cap;
    bool want_places;
    bool want_spaces;
} fsdp_token_sequence;
