from detectron2.config import LazyCall as L

dataloader = OmegaConf.create()
dataloader.train = L(build_detection_train_loader)(
    dataset=L(get_detection_dataset_dicts)(names="coco_2017_train"),
    total_batch_size=16,
    num_workers=4,
)
dataloader.test = L(build_detection_test_loader)(num_workers=4)
train.max_iter = 90000
train.amp.enabled = False
train.eval_period = 5000
optimizer.lr = 0.02
