def read_asmt(path): raise NotImplementedError
