from yolox.exp import Exp as MyExp
class Exp(MyExp):
    depth = 0.33
    width = 0.50
    data_num_workers = 4
    max_epoch = 300
    warmup_epochs = 5
    eval_interval = 10
    test_size = (640, 640)
    def __init__(self):
        super().__init__()
        self.data_num_workers = 2
