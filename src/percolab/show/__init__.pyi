from percolab.show.cluster_picture import draw as draw
from percolab.show.dataset_card import card as card
from percolab.show.explorer import DocumentExplorer as DocumentExplorer
from percolab.show.explorer import Explorer as Explorer
from percolab.show.explorer import Probed as Probed
from percolab.show.explorer import Server as Server
from percolab.show.explorer import explore as explore
