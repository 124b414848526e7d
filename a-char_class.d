char_class.o: src/text/char_class.c src/text/char_class.h \
 include/fsdp/base.h src/base/alloc.h
src/text/char_class.h:
include/fsdp/base.h:
src/base/alloc.h:
