post_processor.o: src/text/post_processor.c src/text/post_processor.h \
 src/base/json.h include/fsdp/base.h src/text/token_sequence.h \
 include/fsdp/text.h src/base/alloc.h src/text/token_json.h \
 src/text/vocabulary.h
src/text/post_processor.h:
src/base/json.h:
include/fsdp/base.h:
src/text/token_sequence.h:
include/fsdp/text.h:
src/base/alloc.h:
src/text/token_json.h:
src/text/vocabulary.h:
